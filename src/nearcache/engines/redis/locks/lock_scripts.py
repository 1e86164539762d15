"""Named locks on the server: each step of a lock is one script, so it happens or it does not.

A lock is one hash, ``NAME\\xffnearcache:lock``, which lies where the user's ACL lets keys lie and,
as no text has that byte in UTF-8, is no key of a user's:

    token    of the holder, or the last one: numbers that grow by one
    ticket   of the holder; empty when it was released
    until    when (ms) the holder's time is over
    since    the first token of an unbroken chain: each lock of it was released, none ran out
    first    the number of the first place in the queue, and
    last     of the last one; in between may be gaps
    p<number>  a place: "<kept until, ms> <ticket> <channel>"
    w<ticket>  the number of that ticket's place

One key, and not one for each thing: it is evicted whole, and it moves whole from one node of a
cluster to another. A script that names several keys gets TRYAGAIN while their slot moves.

A *ticket* is a random number that a caller makes up; whoever asks again with it, because the
answer got lost, gets the same answer. So every script may be sent twice. A release that comes
again finds its token in the chain, and is told that all was well.

Tokens grow for ever: the hash outlives the lock by a day, and a new one starts from the
server's time in microseconds. So they grow also when it was flushed or evicted meanwhile, as
long as the clock was not set back, and the lock not taken a million times a second.

When the lock is let go it goes to the first in the queue who has asked of late, and this one
is woken. He has ``TAKE_MS`` to say that he is alive, or the lock is free again; whoever asks
next finds that out. All times are the server's.

Who gives something out (ACQUIRE, WAIT) does it only until the moment that it was sent with, which
is reckoned from what the server said of its clock before. A server that was frozen finds the
commands of connections in its buffers that have ended long since: each would make a holder
whom nobody knows. Who is late is told so, with the server's time, and asks again.

RENEW, RELEASE and LEAVE run on a server whose memory is full (``allow-oom``).

A script's own words take most of its time: a number made text a tenth of it. So what is there
already is not written again, the hash's life comes as the text that PEXPIRE takes, and what
only a queue needs is defined behind what happens without one.
"""

from __future__ import annotations

from nearcache.engines.redis.locks.claims import MARK
from nearcache.engines.redis.protocol.scripts import Script

LOCK = MARK + b"lock"

KEPT_MS = 2000
"""So long a place is kept for somebody who does not ask."""
TAKE_MS = 500
"""So long the lock waits for the one it was handed to."""
OUTLIVES_MS = 86_400_000

_STATE = """
local LOCK, call = KEYS[1], redis.call
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local token, ticket, ends, first, last = unpack(call('HMGET', LOCK,
  'token', 'ticket', 'until', 'first', 'last'))
local held = ticket and ticket ~= '' and tonumber(ends) > now
first, last = tonumber(first or 1), tonumber(last or 0)
"""

_GIVE = f"""
local function whole(number) return string.format('%.0f', number) end
local function lives_until(lives_ms) return whole(now + lives_ms - {OUTLIVES_MS}) end

-- A lock that ran out ends the chain.
local function give(to, lives_ms)
  local number = token and token + 1 or time[1] * 1000000 + time[2]
  token = whole(number)
  call('HSET', LOCK, 'token', token, 'ticket', to, 'until', lives_until(lives_ms))
  if ticket ~= '' then call('HSET', LOCK, 'since', token) end
  call('PEXPIRE', LOCK, lives_ms)
  return number
end
"""

_QUEUE = f"""
-- The first who has asked of late, taken out of the queue: ticket and channel.
local function next_waiter()
  local found, channel
  if first > last then return end
  while first <= last and not found do
    local place = call('HGET', LOCK, 'p' .. first)
    if place then
      local kept, whose, where = string.match(place, '^(%d+) (%d+) (.*)$')
      call('HDEL', LOCK, 'p' .. first, 'w' .. whose)
      if tonumber(kept) > now then found, channel = whose, where end
    end
    first = first + 1
  end
  if first > last then first, last = 1, 0 end
  call('HSET', LOCK, 'first', first, 'last', last)
  return found, channel
end

-- True if the lock, which is free, went to somebody else than me.
local function pass_on(me)
  local to, channel = next_waiter()
  if not to or to == me then return false end
  give(to, '{OUTLIVES_MS + TAKE_MS}')
  -- An ACL may forbid it: the waiter then finds out when it asks again.
  redis.pcall('PUBLISH', channel, to)
  return true
end
"""

_LET_GO = """
local function let_go()
  ticket = ''
  if not pass_on() then call('HSET', LOCK, 'ticket', '') end
end
"""

LATE = -1
"""Instead of a token: it came too late to give anything out."""

# ARGV: ticket, how long the hash lives (ms), until when (ms). The token, 0 or LATE; the server's
# time.
ACQUIRE = Script(
    _STATE
    + _GIVE
    + f"""
if now > tonumber(ARGV[3]) then return {{{LATE}, now}} end
if held then return {{ticket == ARGV[1] and tonumber(token) or 0, now}} end
if first > last then return {{give(ARGV[1], ARGV[2]), now}} end
"""
    + _QUEUE
    + """
if pass_on() then return {0, now} end
return {give(ARGV[1], ARGV[2]), now}
"""
)

# ARGV: ticket, how long the hash lives (ms), channel, until when (ms). The token or LATE and the
# server's time; or 0, the milliseconds the holder has left, and the server's time.
WAIT = Script(
    _STATE
    + _GIVE
    + f"""
local me = ARGV[1]
if now > tonumber(ARGV[4]) then return {{{LATE}, now}} end
if held and ticket == me then
  call('HSET', LOCK, 'until', lives_until(ARGV[2]))
  call('PEXPIRE', LOCK, ARGV[2])
  return {{tonumber(token), now}}
end
if not held and first > last then return {{give(me, ARGV[2]), now}} end
"""
    + _QUEUE
    + f"""
local place = whole(now + {KEPT_MS}) .. ' ' .. me .. ' ' .. ARGV[3]
local number = call('HGET', LOCK, 'w' .. me)
-- First: whoever asks is alive, however late it is.
if number then call('HSET', LOCK, 'p' .. number, place) end
if not held then
  if not pass_on(me) then return {{give(me, ARGV[2]), now}} end
  ends = now + {TAKE_MS}
end
if not number then
  last = last + 1
  call('HSET', LOCK, 'w' .. me, last, 'p' .. last, place, 'first', first, 'last', last)
end
return {{0, ends - now, now}}
"""
)

# ARGV: token, how long the hash lives (ms). 1 if it was held.
RENEW = Script(
    _STATE
    + _GIVE
    + """
if not held or token ~= ARGV[1] then return 0 end
call('HSET', LOCK, 'until', lives_until(ARGV[2]))
return call('PEXPIRE', LOCK, ARGV[2])
""",
    flags="allow-oom",
)

# ARGV: token. 1 if it was held, or had been when it was released before.
RELEASE = Script(
    _STATE
    + """
if not token then return 0 end
if held and token == ARGV[1] and first > last then
  call('HSET', LOCK, 'ticket', '')
  return 1
end
"""
    + _GIVE
    + _QUEUE
    + _LET_GO
    + """
if held and token == ARGV[1] then
  let_go()
  return 1
end
local since = tonumber(call('HGET', LOCK, 'since'))
local given, newest = tonumber(ARGV[1]), tonumber(token)
if ticket == '' then newest = newest + 1 end
return since <= given and given < newest and 1 or 0
""",
    flags="allow-oom",
)

# ARGV: ticket. Gives up whatever the ticket has: the lock, or a place.
LEAVE = Script(
    _STATE
    + _GIVE
    + _QUEUE
    + _LET_GO
    + """
local number = call('HGET', LOCK, 'w' .. ARGV[1])
if number then call('HDEL', LOCK, 'w' .. ARGV[1], 'p' .. number) end
if held and ticket == ARGV[1] then let_go() end
return 0
""",
    flags="allow-oom",
)


def lock_key(name: bytes) -> bytes:
    """Where a lock lives."""
    return name + LOCK
