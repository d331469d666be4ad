-- wrk's script for bench/api/wrk.py: reads the request from the environment and writes the result as a line of JSON.
-- No response() on purpose, because with it wrk copies every body into Lua. wrk itself counts statuses above 399.
wrk.method = os.getenv("BENCH_METHOD")
wrk.headers["Authorization"] = "Bearer " .. os.getenv("BENCH_KEY")

local head, tail = os.getenv("BENCH_BODY_HEAD"), os.getenv("BENCH_BODY_TAIL")
if head then
   wrk.headers["Content-Type"] = "application/json"
   local sent = 0
   function request() -- a counter between the two halves makes each body unique
      sent = sent + 1
      return wrk.format(nil, nil, nil, head .. sent .. tail)
   end
end

function done(summary, latency)
   local bad = summary.errors
   io.write(string.format(
      '{"requests": %d, "seconds": %.6f, "p50_ms": %.3f, "p99_ms": %.3f, "not_2xx": %d}\n',
      summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
      bad.status + bad.connect + bad.read + bad.write + bad.timeout))
end
