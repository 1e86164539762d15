//! Moments and spans of time. `format.rs` has the format.

use std::ffi::c_int;

use pyo3::ffi;

use crate::values::exact::decode::{Decoder, Object};
use crate::values::exact::format::{FOLD, UTC};

impl<'py> Decoder<'_, 'py> {
    pub(super) fn datetime(&mut self) -> Object<'py> {
        let (year, month, day) = self.year_month_day()?;
        let (hour, minute, second, microsecond) = self.clock()?;
        let (fold, tzinfo) = self.fold_and_zone()?;
        // SAFETY: attached; the C constructor checks every range.
        unsafe {
            let api = &*ffi::PyDateTimeAPI();
            self.owned((api.DateTime_FromDateAndTimeAndFold)(
                year,
                month,
                day,
                hour,
                minute,
                second,
                microsecond,
                tzinfo,
                fold,
                api.DateTimeType,
            ))
        }
    }

    pub(super) fn date(&mut self) -> Object<'py> {
        let (year, month, day) = self.year_month_day()?;
        // SAFETY: attached; the C constructor checks every range.
        unsafe {
            let api = &*ffi::PyDateTimeAPI();
            self.owned((api.Date_FromDate)(year, month, day, api.DateType))
        }
    }

    pub(super) fn time(&mut self) -> Object<'py> {
        let (hour, minute, second, microsecond) = self.clock()?;
        let (fold, tzinfo) = self.fold_and_zone()?;
        // SAFETY: attached; the C constructor checks every range.
        unsafe {
            let api = &*ffi::PyDateTimeAPI();
            self.owned((api.Time_FromTimeAndFold)(
                hour,
                minute,
                second,
                microsecond,
                tzinfo,
                fold,
                api.TimeType,
            ))
        }
    }

    pub(super) fn timedelta(&mut self) -> Object<'py> {
        let days = i32::from_le_bytes(self.reader.array()?);
        let seconds = i32::from_le_bytes(self.reader.array()?);
        let microseconds = i32::from_le_bytes(self.reader.array()?);
        // SAFETY: attached; with `normalize` any three numbers are checked and carried.
        unsafe {
            let api = &*ffi::PyDateTimeAPI();
            self.owned((api.Delta_FromDelta)(days, seconds, microseconds, 1, api.DeltaType))
        }
    }

    fn year_month_day(&mut self) -> Option<(c_int, c_int, c_int)> {
        let year = u16::from_le_bytes(self.reader.array()?);
        let [month, day] = self.reader.array()?;
        Some((year.into(), month.into(), day.into()))
    }

    fn clock(&mut self) -> Option<(c_int, c_int, c_int, c_int)> {
        let [hour, minute, second, a, b, c] = self.reader.array()?;
        let microsecond = i32::from_le_bytes([a, b, c, 0]);
        Some((hour.into(), minute.into(), second.into(), microsecond))
    }

    /// The fold and a borrowed tzinfo.
    fn fold_and_zone(&mut self) -> Option<(c_int, *mut ffi::PyObject)> {
        let flags = self.reader.byte()?;
        if flags & !(FOLD | UTC) != 0 {
            return None;
        }
        let tzinfo = match flags & UTC {
            // SAFETY: attached; None lives for ever.
            0 => unsafe { ffi::Py_None() },
            _ => self.types.utc,
        };
        Some(((flags & FOLD).into(), tzinfo))
    }
}
