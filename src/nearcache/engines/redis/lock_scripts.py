"""Named locks on the server: each step of a lock is one script, so it happens or it does not.

    nearcache:lock:{=NAME}        held  "<token> <ticket> <since>"   PX: the holder's time
                                  free  "<token> - <since>"          PX: REMEMBER_MS
    nearcache:lock:{=NAME}:count  the last number given out; tokens and places are numbered by it
    nearcache:lock:{=NAME}:queue  sorted set: "<ticket> <channel>" by number of arrival
    nearcache:lock:{=NAME}:kept   hash: the same members, until when (ms) their place is kept

The braces put the keys of one lock into one slot of a cluster; the ``=`` because Redis takes
no notice of empty ones. A *ticket* is a random number that a caller makes up; whoever asks
again with it, because the answer got lost, gets the same answer. So every script may be sent
twice.

Free is not absent: the key stays for a while, and says which holds ended by a release.
``since`` is the first token of an unbroken chain: each lock of it was released, none ran
out. A release that comes again finds its token in the chain, and is told that all was well.

Tokens grow for ever: the counter outlives the lock, by a week at least, and starts from the
server's time in microseconds. So they grow also when it was flushed or evicted meanwhile, as
long as the clock was not set back, and the lock not taken a million times a second.

When the lock is let go it goes to the first in the queue who has asked of late, and this one
is woken. He has ``TAKE_MS`` to say that he is alive, or the lock is free again; whoever asks
next finds that out. All times are the server's.
"""

from __future__ import annotations

from nearcache.engines.redis.scripts import Script

LOCK_KEYS = b"nearcache:lock:"
"""What all keys here begin with, and no key of a cache does: clear and scan pass over them."""

KEPT_MS = 2000
"""So long a place is kept for somebody who does not ask."""
TAKE_MS = 500
"""So long the lock waits for the one it was handed to."""
REMEMBER_MS = 10_000
"""So long a release may be repeated."""
COUNT_MS = 7 * 86_400_000

_COMMON = f"""
local LOCK, COUNT, QUEUE, KEPT = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

local function count()
  local number = redis.call('INCR', COUNT)
  if number == 1 then
    local now = redis.call('TIME')
    number = now[1] * 1000000 + now[2]
    redis.call('SET', COUNT, string.format('%.0f', number), 'PX', {COUNT_MS})
  end
  return number
end

local function now_ms()
  local now = redis.call('TIME')
  return now[1] * 1000 + math.floor(now[2] / 1000)
end

-- token, ticket and since, as text; nothing if the lock ran out
local function read()
  local text = redis.call('GET', LOCK)
  if text then return string.match(text, '^(%d+) (%S+) (%d+)$') end
end

local function give(ticket, ttl_ms, since)
  local token = count()
  local text = string.format('%.0f', token)
  redis.call('SET', LOCK, text .. ' ' .. ticket .. ' ' .. (since or text), 'PX', ttl_ms)
  return token
end

-- the first who has asked of late, taken out of the queue
local function first()
  local member = redis.call('ZRANGE', QUEUE, 0, 0)[1]
  local now = member and now_ms()
  while member do
    local kept = redis.call('HGET', KEPT, member)
    redis.call('ZREM', QUEUE, member)
    redis.call('HDEL', KEPT, member)
    if kept and tonumber(kept) > now then return member end
    member = redis.call('ZRANGE', QUEUE, 0, 0)[1]
  end
end

-- true if the lock, which is free, went to somebody else than me
local function pass_on(since, me)
  local member = first()
  if not member or member == me then return false end
  local ticket, channel = string.match(member, '^(%d+) (.*)$')
  give(ticket, {TAKE_MS}, since)
  -- An ACL may forbid it: the waiter then finds out when it asks again.
  redis.pcall('PUBLISH', channel, ticket)
  return true
end

local function let_go(token, since)
  if pass_on(since) then return end
  redis.call('SET', LOCK, token .. ' - ' .. since, 'PX', {REMEMBER_MS})
end
"""

# ARGV: ticket, ttl_ms. The token, or 0.
ACQUIRE = Script(
    _COMMON
    + """
local token, ticket, since = read()
if ticket == ARGV[1] then return tonumber(token) end
if ticket and ticket ~= '-' then return 0 end
-- Whoever let it go has looked into the queue; if it ran out nobody has.
if not ticket and pass_on() then return 0 end
return give(ARGV[1], ARGV[2], since)
"""
)

# ARGV: ticket, channel, ttl_ms. The token, or 0 and the milliseconds the holder has left.
WAIT = Script(
    _COMMON
    + f"""
local token, ticket, since = read()
if ticket == ARGV[1] then
  redis.call('PEXPIRE', LOCK, ARGV[3])
  return {{tonumber(token), 0}}
end
if ticket == '-' then return {{give(ARGV[1], ARGV[3], since), 0}} end
local me = ARGV[1] .. ' ' .. ARGV[2]
local kept = string.format('%.0f', now_ms() + {KEPT_MS})
local placed = redis.call('ZSCORE', QUEUE, me)
-- First: whoever asks is alive, however late it is.
if placed then redis.call('HSET', KEPT, me, kept) end
if not ticket and not pass_on(nil, me) then return {{give(ARGV[1], ARGV[3]), 0}} end
if not placed then
  redis.call('ZADD', QUEUE, string.format('%.0f', count()), me)
  redis.call('HSET', KEPT, me, kept)
end
redis.call('PEXPIRE', QUEUE, {5 * KEPT_MS})
redis.call('PEXPIRE', KEPT, {5 * KEPT_MS})
return {{0, redis.call('PTTL', LOCK)}}
"""
)

# ARGV: token, ttl_ms. 1 if it was held.
RENEW = Script(
    _COMMON
    + """
local token, ticket = read()
if token ~= ARGV[1] or ticket == '-' then return 0 end
return redis.call('PEXPIRE', LOCK, ARGV[2])
"""
)

# ARGV: token. 1 if it was held, or had been when it was released before.
RELEASE = Script(
    _COMMON
    + """
local token, ticket, since = read()
if not token then return 0 end
if token == ARGV[1] and ticket ~= '-' then
  let_go(token, since)
  return 1
end
local given, last = tonumber(ARGV[1]), tonumber(token)
if ticket == '-' then last = last + 1 end
return (tonumber(since) <= given and given < last) and 1 or 0
"""
)

# ARGV: ticket, channel. Gives up whatever the ticket has: the lock, or a place.
LEAVE = Script(
    _COMMON
    + """
local me = ARGV[1] .. ' ' .. ARGV[2]
redis.call('ZREM', QUEUE, me)
redis.call('HDEL', KEPT, me)
local token, ticket, since = read()
if ticket == ARGV[1] then let_go(token, since) end
return 0
"""
)


def lock_keys(name: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    """The keys of one lock."""
    lock = b"%b{=%b}" % (LOCK_KEYS, name)
    return lock, lock + b":count", lock + b":queue", lock + b":kept"
