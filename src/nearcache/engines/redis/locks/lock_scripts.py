"""Named locks on the server. Each step of a lock is one script, so it happens or it does not.

A lock is one hash, ``NAME\\xffnearcache:lock``. Its key begins with the lock's name, so the user's
ACL allows it. No key of a user's has such a name, because UTF-8 has no byte ``\\xff``. Fields:

    token    of the holder, or of the last holder: numbers that grow by one
    ticket   of the holder; empty after a release
    until    when (ms) the holder's time is over
    since    the first token of an unbroken chain: each lock of it was released, none ran out
    first    the number of the first place in the queue
    last     the number of the last place; between the two may be gaps
    p<number>  a place: "<kept until, ms> <ticket> <channel>"
    w<ticket>  the number of that ticket's place

All of a lock is in one key. So it is evicted whole, and moves whole from one node of a cluster to
another. A script that names several keys would get TRYAGAIN while their slot moves.

A *ticket* is a random number that a caller makes up. A caller whose answer got lost asks again
with the same ticket, and gets the same answer. So every script may be sent twice. A release that
is sent twice finds its token in the chain, and replies that all was well.

Tokens grow for ever. The hash outlives the lock by a day, and the tokens of a new hash start from
the server's time in microseconds. So tokens grow also across a flush or an eviction, unless the
server's clock was set back, or the lock was taken a million times a second.

A lock that is let go goes to the first waiter of the queue that has asked of late. That waiter is
woken, and has ``TAKE_MS`` to say that it is alive. After that time the lock is free again, which
the next script finds out. All times are the server's.

ACQUIRE and WAIT give something out. Each is sent with a time limit, reckoned from the server's
clock as it was told before, and gives nothing out after that limit. The reason is a server that was
frozen: in its buffers are commands of connections that have ended since, and each would make a
holder that nobody knows. A script that comes too late replies LATE and the server's time, and the
caller asks again.

RENEW, RELEASE and LEAVE run on a server whose memory is full (``allow-oom``).

Most of a script's time goes into its own statements: making a number a text takes a tenth of it.
So a script writes no field that has its value already, and gets the hash's life as the text that
PEXPIRE takes. Functions that only a queue needs are defined behind what happens without one.
"""

from __future__ import annotations

from nearcache.engines.redis.locks.claims import MARK
from nearcache.engines.redis.protocol.scripts import Script

LOCK = MARK + b"lock"

KEPT_MS = 2000
"""How long a place is kept for a waiter that does not ask."""
TAKE_MS = 500
"""How long the lock waits for the waiter that it was handed to."""
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
-- Takes the first waiter that has asked of late out of the queue: its ticket and channel.
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

-- Hands on a lock that is free. True if it went to another ticket than `me`.
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
"""Replied instead of a token: the script came too late to give anything out."""

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
-- Before anything else: a waiter that asks is alive, however late it asks.
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
