//! The rarer exact types: moments, numbers beyond 64 bits, UUIDs. `format.rs` has the format.

use std::ffi::c_int;

use pyo3::ffi;
use pyo3::prelude::*;

use crate::interop::python::CollectorOff;
use crate::values::exact::encode::Encoder;
use crate::values::exact::format::*;

impl Encoder<'_, '_> {
    /// # Safety
    /// E1, and the object is an exact int.
    pub(super) unsafe fn big_int(&mut self, object: *mut ffi::PyObject) -> Encoded {
        let _guard = CollectorOff::new(self.py);
        // SAFETY: E1.
        let int = unsafe { Bound::from_borrowed_ptr(self.py, object) };
        let bytes = crate::interop::python::int_to_bytes(&int).map_err(|_| Declined)?;
        // SAFETY: E1.
        unsafe { self.sharing.once(object, bytes.len()) }?;
        self.counted(INT_BIG, &bytes)
    }

    /// # Safety
    /// E1, and the object is an exact datetime.
    pub(super) unsafe fn datetime(&mut self, object: *mut ffi::PyObject) -> Encoded {
        // SAFETY: the caller's promise.
        unsafe {
            let tzinfo = ffi::PyDateTime_DATE_GET_TZINFO(object);
            let utc = tzinfo == self.types.utc;
            if !utc && tzinfo != ffi::Py_None() {
                return Err(Declined);
            }
            self.out.push(DATETIME);
            self.year_month_day(object);
            self.clock(
                ffi::PyDateTime_DATE_GET_HOUR(object),
                ffi::PyDateTime_DATE_GET_MINUTE(object),
                ffi::PyDateTime_DATE_GET_SECOND(object),
                ffi::PyDateTime_DATE_GET_MICROSECOND(object),
            );
            let fold = ffi::PyDateTime_DATE_GET_FOLD(object) != 0;
            self.out.push(flags(fold, utc));
        }
        Ok(())
    }

    /// # Safety
    /// E1, and the object is an exact date.
    pub(super) unsafe fn date(&mut self, object: *mut ffi::PyObject) -> Encoded {
        self.out.push(DATE);
        // SAFETY: the caller's promise.
        unsafe { self.year_month_day(object) };
        Ok(())
    }

    /// # Safety
    /// E1, and the object is an exact time.
    pub(super) unsafe fn time(&mut self, object: *mut ffi::PyObject) -> Encoded {
        // SAFETY: the caller's promise.
        unsafe {
            let tzinfo = ffi::PyDateTime_TIME_GET_TZINFO(object);
            let utc = tzinfo == self.types.utc;
            if !utc && tzinfo != ffi::Py_None() {
                return Err(Declined);
            }
            self.out.push(TIME);
            self.clock(
                ffi::PyDateTime_TIME_GET_HOUR(object),
                ffi::PyDateTime_TIME_GET_MINUTE(object),
                ffi::PyDateTime_TIME_GET_SECOND(object),
                ffi::PyDateTime_TIME_GET_MICROSECOND(object),
            );
            let fold = ffi::PyDateTime_TIME_GET_FOLD(object) != 0;
            self.out.push(flags(fold, utc));
        }
        Ok(())
    }

    /// # Safety
    /// E1, and the object is an exact timedelta.
    pub(super) unsafe fn timedelta(&mut self, object: *mut ffi::PyObject) -> Encoded {
        self.out.push(TIMEDELTA);
        // SAFETY: the caller's promise.
        let parts = unsafe {
            [
                ffi::PyDateTime_DELTA_GET_DAYS(object),
                ffi::PyDateTime_DELTA_GET_SECONDS(object),
                ffi::PyDateTime_DELTA_GET_MICROSECONDS(object),
            ]
        };
        for part in parts {
            self.out.extend_from_slice(&part.to_le_bytes());
        }
        Ok(())
    }

    /// # Safety
    /// E1, and the object is an exact Decimal.
    pub(super) unsafe fn decimal(&mut self, object: *mut ffi::PyObject) -> Encoded {
        // SAFETY: E1.
        let text =
            unsafe { Bound::from_borrowed_ptr(self.py, object) }.str().map_err(|_| Declined)?;
        let text = text.to_str().map_err(|_| Declined)?;
        // SAFETY: E1.
        unsafe { self.sharing.once(object, text.len()) }?;
        self.counted(DECIMAL, text.as_bytes())
    }

    /// # Safety
    /// E1, and the object is an exact UUID.
    pub(super) unsafe fn uuid(&mut self, object: *mut ffi::PyObject) -> Encoded {
        // SAFETY: E1.
        let uuid = unsafe { Bound::from_borrowed_ptr(self.py, object) };
        let bytes = self.types.uuid_bytes(&uuid).ok_or(Declined)?;
        self.out.push(UUID);
        self.out.extend_from_slice(&bytes);
        Ok(())
    }

    /// # Safety
    /// E1, and the object is a date or a datetime.
    unsafe fn year_month_day(&mut self, object: *mut ffi::PyObject) {
        // SAFETY: the caller's promise.
        let (year, month, day) = unsafe {
            (
                ffi::PyDateTime_GET_YEAR(object),
                ffi::PyDateTime_GET_MONTH(object),
                ffi::PyDateTime_GET_DAY(object),
            )
        };
        self.out.extend_from_slice(&(year as u16).to_le_bytes());
        self.out.extend_from_slice(&[month as u8, day as u8]);
    }

    fn clock(&mut self, hour: c_int, minute: c_int, second: c_int, microsecond: c_int) {
        self.out.extend_from_slice(&[hour as u8, minute as u8, second as u8]);
        self.out.extend_from_slice(&microsecond.to_le_bytes()[..3]);
    }
}

fn flags(fold: bool, utc: bool) -> u8 {
    (FOLD * u8::from(fold)) | (UTC * u8::from(utc))
}
