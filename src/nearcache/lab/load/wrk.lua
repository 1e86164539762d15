-- What wrk asks for, and what it checks: see wrk.py.
-- Arguments: a file of paths, a file of bodies, and a word that makes URLs new ("" for none).
-- Globals, because only those can be read from outside a thread.

at, unknown, status, hits = 0, 0, 0, 0
local requests, bodies, fresh = {}, {}, ""
local threads = {}

function setup(thread)
  threads[#threads + 1] = thread
end

function init(args)
  wrk.headers["Host"] = "lab"
  fresh = args[3] or ""
  for line in io.lines(args[2]) do bodies[line] = true end
  for path in io.lines(args[1]) do
    -- Made beforehand where they can be: the generator is to have time left.
    requests[#requests + 1] = fresh == "" and wrk.format("GET", path) or path
  end
end

function request()
  at = at + 1
  local wanted = requests[(at - 1) % #requests + 1]
  if fresh == "" then return wanted end
  if at % 2 == 0 then return wrk.format("GET", wanted) end
  return wrk.format("GET", wanted .. "?v=" .. fresh .. at)
end

function response(code, headers, body)
  if code ~= 200 then
    status = status + 1
  elseif not bodies[body] then
    unknown = unknown + 1
  end
  if headers["X-Cache-Status"] == "HIT" or headers["X-App-Cache"] == "hit" then
    hits = hits + 1
  end
end

function done(summary)
  local errors, seen = summary.errors, {unknown = 0, status = 0, hits = 0}
  for _, thread in ipairs(threads) do
    for name in pairs(seen) do seen[name] = seen[name] + (thread:get(name) or 0) end
  end
  local broken = errors.connect + errors.read + errors.write + errors.timeout
  local form = '\nRESULT {"answers": %d, "us": %d, "broken": %d, "unknown": %d, '
    .. '"status": %d, "hits": %d}\n'
  io.write(string.format(form, summary.requests, summary.duration, broken, seen.unknown,
    seen.status, seen.hits))
end
