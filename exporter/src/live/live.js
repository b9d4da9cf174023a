// Requests /live.json once a second, shows the current numbers, and draws their history. All data
// is inserted as text, never as markup, because names of tasks come from the observed program and
// can contain anything.
"use strict";

const INTERVAL_MS = 1000;
const POINTS_MAX = 600; // ten minutes
const SLOW_NS = 10e6; // a poll in flight for longer is highlighted

const $ = (id) => document.getElementById(id);

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

// ---- figures ------------------------------------------------------------------------------------

function duration(ns) {
  if (ns === null || ns === undefined) return "-";
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]]) {
    if (ns >= size) return (ns / size).toPrecision(3) + " " + unit;
  }
  return Math.round(ns) + " ns";
}

function count(n) {
  if (n === null || n === undefined) return "-";
  if (n >= 1e9) return (n / 1e9).toPrecision(3) + "G";
  if (n >= 1e6) return (n / 1e6).toPrecision(3) + "M";
  if (n >= 1e4) return (n / 1e3).toPrecision(3) + "k";
  return n >= 100 || Number.isInteger(n) ? String(Math.round(n)) : n.toPrecision(2);
}

// Formats seconds since 1970 as local time.
const clock = (at) => new Date(at * 1000).toLocaleTimeString([], { hour12: false });

const percent = (ratio) => (ratio === null || ratio === undefined ? "-" : Math.round(ratio * 100) + "%");

// ---- values of a runtime ------------------------------------------------------------------------

const sum = (list, of) => list.reduce((total, item) => total + of(item), 0);
const longest = (runtime) => Math.max(0, ...runtime.workers.map((worker) => (worker.in_flight ? worker.in_flight.for_ns : 0)));
const local = (runtime) =>
  sum(runtime.workers, (worker) => worker.ring_len + worker.batch_len + worker.inbox_len + (worker.is_lifo_filled ? 1 : 0));

// The smallest upper end of an axis, so that zero does not fill the chart, and how its numbers are
// formatted.
const UNITS = {
  "/s": { name: "per second", least: 1, text: count },
  "%": { name: "%", least: 100, text: (n) => Math.round(n) + "%" },
  ns: { name: "", least: 1e3, text: duration },
  "": { name: "", least: 1, text: count },
};

// Name, unit, and the curves: label, colour, value.
const CHARTS = [
  ["Polls", "/s", [["polls", "--calm", (r) => r.rates && r.rates.polls_per_second]]],
  ["Where the workers' time goes", "%", [
    ["busy", "--good", (r) => r.rates && r.rates.busy_ratio * 100],
    ["searching", "--warn", (r) => r.rates && r.rates.searching_ratio * 100],
    ["idle", "--dim", (r) => r.rates && (r.rates.parked_ratio + r.rates.driver_ratio) * 100],
  ]],
  ["Schedule delay", "ns", [
    ["p50", "--calm", (r) => r.rates && r.rates.schedule_delay.p50_ns],
    ["p99", "--bad", (r) => r.rates && r.rates.schedule_delay.p99_ns],
  ]],
  ["Poll duration", "ns", [
    ["p50", "--calm", (r) => r.rates && r.rates.poll_time.p50_ns],
    ["p99", "--bad", (r) => r.rates && r.rates.poll_time.p99_ns],
    ["in flight", "--other", longest],
  ]],
  ["Waiting tasks", "", [
    ["global queue", "--bad", (r) => r.global_queue.len],
    ["local queues", "--calm", local],
  ]],
  ["Steals and parks", "/s", [
    ["tasks stolen", "--calm", (r) => r.rates && r.rates.tasks_stolen_per_second],
    ["parks", "--dim", (r) => r.rates && r.rates.parks_per_second],
  ]],
];

// ---- history ------------------------------------------------------------------------------------

const histories = new Map(); // runtime key -> [times, values of each curve…], in the order of CHARTS
let chosen = null; // the key of the selected runtime
let plots = [];

const curves = CHARTS.flatMap(([, , curves]) => curves);

function remember(key, runtime, now) {
  let history = histories.get(key);
  if (!history) histories.set(key, (history = [[], ...curves.map(() => [])]));
  history[0].push(now);
  curves.forEach(([, , value], i) => history[i + 1].push(value(runtime) ?? null));
  if (history[0].length > POINTS_MAX) history.forEach((list) => list.shift());
}

function color(name) {
  // Only a real element resolves `light-dark`.
  const probe = element("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const resolved = getComputedStyle(probe).color;
  probe.remove();
  return resolved;
}

function makePlots() {
  $("charts").replaceChildren();
  const [text, line] = [color("--dim"), color("--line")];
  // All figures are added first, because the width of each depends on its neighbours.
  const figures = CHARTS.map(([name, unit]) => {
    const figure = element("figure");
    figure.append(element("figcaption", "", UNITS[unit].name ? `${name} (${UNITS[unit].name})` : name));
    return figure;
  });
  $("charts").append(...figures);
  plots = CHARTS.map(([, unit, curves], i) => {
    const figure = figures[i];
    const axis = { stroke: text, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
    const { least, text: written } = UNITS[unit];
    const value = (_, value) => (value === null || value === undefined ? "-" : written(value));
    const options = {
      width: figure.clientWidth || 430,
      height: 190,
      cursor: { sync: { key: "volt" } },
      scales: { y: { range: (_, low, high) => [0, Math.max(high || 0, least) * 1.05] } },
      axes: [
        { ...axis, size: 30, space: 70, values: (_, ticks) => ticks.map(clock) },
        { ...axis, size: 64, values: (_, ticks) => ticks.map(written) },
      ],
      series: [{}, ...curves.map(([label, name]) => ({ label, stroke: color(name), width: 1.5, value, spanGaps: false, points: { show: false } }))],
    };
    return new uPlot(options, [[], ...curves.map(() => [])], figure);
  });
}

function drawPlots() {
  const history = histories.get(chosen);
  if (!history) return;
  let at = 1;
  plots.forEach((plot, i) => {
    const many = CHARTS[i][2].length;
    plot.setData([history[0], ...history.slice(at, at + many)]);
    // Without a pointer over the charts, the legend shows the latest values.
    if (plot.cursor.idx === null || plot.cursor.idx === undefined) plot.setLegend({ idx: history[0].length - 1 }, false);
    at += many;
  });
}

// ---- current values -----------------------------------------------------------------------------

// Returns the number of current findings that need action.
function badge(runtime) {
  return runtime.findings.filter((finding) => finding.seen.is_current && finding.severity !== "info").length;
}

function history(seen, nowNs) {
  const ago = (atNs) => (nowNs - atNs < 1e9 ? "just now" : `${duration(nowNs - atNs)} ago`);
  const past = seen.is_current ? "" : `worst severity ${seen.worst}; `;
  return `${past}began ${ago(seen.first_at_ns)}, last seen ${ago(seen.last_at_ns)}, in ${seen.count} ${seen.count === 1 ? "check" : "checks"}`;
}

function showFindings(runtime) {
  const box = $("findings");
  const found = runtime.findings;
  const current = found.filter((finding) => finding.seen.is_current);
  box.className = current.length ? current[0].severity : "";
  box.replaceChildren(
    element("b", "", runtime.verdict),
    ...found.map((finding) => {
      const word = finding.seen.is_current ? finding.severity : "past";
      const shown = element("div", "finding " + finding.severity);
      const title = element("b");
      title.append(element("span", "severity", word), `${finding.rule}: ${finding.title}`);
      shown.append(title);
      shown.append(element("p", "", history(finding.seen, runtime.at_ns)));
      for (const place of finding.locations) {
        const where = element("p", "", place.kind === "guilty" ? "at " : "spawned at ");
        where.append(element("code", "", place.at + (place.function ? " in " + place.function : "")));
        shown.append(where);
      }
      shown.append(element("p", "", finding.evidence.map((evidence) => evidence.text).join(" · ")));
      if (finding.advice) shown.append(element("p", "", finding.advice));
      return shown;
    }),
  );
}

const LETTERS = { busy: "B", parked: "●", driver: "●", searching: "S", maintenance: "M" };

function doing(runtime, worker) {
  return runtime.is_parked[worker.index] ? "parked" : worker.phase;
}

function fact(name, value) {
  const shown = element("span", "", name + " ");
  shown.append(value instanceof Node ? value : element("b", "", value));
  return shown;
}

function lamps(runtime) {
  const shown = element("span", "lamps");
  shown.title = "● parked, B busy, S searching, M maintenance";
  for (const worker of runtime.workers.filter((worker) => worker.duty !== "off")) {
    const what = doing(runtime, worker);
    shown.append(element("span", what, LETTERS[what] || "?"));
  }
  return shown;
}

function showFacts(runtime) {
  const on = runtime.workers.filter((worker) => worker.duty !== "off");
  const parked = on.filter((worker) => runtime.is_parked[worker.index]).length;
  const rates = runtime.rates;
  $("facts").replaceChildren(
    fact("workers", lamps(runtime)),
    fact("parked", `${parked}/${on.length}`),
    fact("searching", String(runtime.searching)),
    fact("busy", percent(rates && rates.busy_ratio)),
    fact("global queue", count(runtime.global_queue.len)),
    fact("oldest task", duration(runtime.global_queue.oldest_age_ns)),
    fact("tasks alive", count(runtime.tasks.alive)),
    fact("spawned/s", count(rates && rates.spawned_per_second)),
    fact("delay p99", duration(rates && rates.schedule_delay.p99_ns)),
    fact("poll p99", duration(rates && rates.poll_time.p99_ns)),
    fact("spare workers", `${runtime.sentinel.spares_on_duty}/${runtime.sentinel.max_spares}`),
    fact("busy blocking threads", `${runtime.blocking.threads - runtime.blocking.idle_threads}/${runtime.blocking.max_threads}`),
    fact("up", duration(runtime.at_ns - runtime.started_at_ns)),
  );
}

function gauge(value, max) {
  const shown = element("meter");
  shown.max = max;
  shown.value = value;
  shown.title = `${value} of ${max}`;
  return shown;
}

function showWorkers(runtime) {
  const rows = runtime.workers.map((worker, i) => {
    const rates = (runtime.rates && runtime.rates.workers[i]) || null;
    const row = element("tr", worker.duty);
    const cell = (text, className) => row.append(element("td", className, text));
    const detail = (text) => cell(text, "detail");
    const what = worker.duty === "off" || worker.duty === "stuck" || worker.duty === "blocking" ? worker.duty : doing(runtime, worker);
    cell(worker.index + (worker.is_spare ? " spare" : ""));
    cell(what, "text " + what);
    cell(percent(rates && rates.busy_ratio));
    detail(worker.is_lifo_filled ? "1" : "0");
    detail(worker.batch_len);
    const ring = element("td", "detail");
    ring.append(worker.ring_len + " ", gauge(worker.ring_len, runtime.config.local_queue_capacity));
    row.append(ring);
    detail(worker.inbox_len);
    const budget = element("td", "detail");
    budget.append(worker.budget_left + " ", gauge(worker.budget_left, runtime.config.budget_per_tick));
    row.append(budget);
    detail(duration(worker.avg_poll_ns));
    detail(worker.global_queue_interval);
    detail(count(rates && rates.polls_per_second));
    detail(count(rates && rates.steals_per_second));
    const flight = worker.in_flight;
    const text = flight ? `${duration(flight.for_ns)} ${flight.route || flight.task_name || "#" + flight.task_id} from ${flight.spawned_at}` : "-";
    cell(text, "text flight" + (flight && flight.for_ns > SLOW_NS ? " slow" : ""));
    // The full text, for when the cell has no room for it.
    row.lastChild.title = text;
    return row;
  });
  $("workers").tBodies[0].replaceChildren(...rows);
}

function showBlame(runtime) {
  const rates = runtime.rates ? [...runtime.rates.locations] : [];
  rates.sort((a, b) => b.delayed_by_it - a.delayed_by_it || b.busy_workers - a.busy_workers);
  const rows = rates.slice(0, 10).map((location) => {
    const row = element("tr");
    row.append(element("td", "text", location.spawned_at));
    for (const key of ["polls_per_second", "busy_workers", "stalls_per_second", "delayed_by_it", "delayed"]) {
      row.append(element("td", "", count(location[key])));
    }
    return row;
  });
  $("blame").tBodies[0].replaceChildren(...rows);
}

function showRoutes(runtime) {
  const rates = runtime.rates ? [...runtime.rates.routes] : [];
  $("http").hidden = rates.length === 0;
  // Those with failures first.
  rates.sort((a, b) => b.failed_per_second - a.failed_per_second || b.requests_per_second - a.requests_per_second);
  $("http").querySelector("h2").textContent = `HTTP requests by route${rates.length > 10 ? ` (10 of ${rates.length} routes)` : ""}`;
  const rows = rates.slice(0, 10).map((route) => {
    const row = element("tr");
    row.append(element("td", "text", `${route.method} ${route.path}`));
    const cell = (text, kind) => row.append(element("td", kind, text));
    cell(count(route.requests_per_second), "");
    cell(count(route.failed_per_second), route.failed_per_second > 0 ? "slow" : "");
    cell(duration(route.duration.p50_ns), "detail");
    cell(duration(route.duration.p99_ns), "");
    cell(count(route.busy_workers), "detail");
    cell(count(route.delayed), "detail");
    return row;
  });
  $("routes").tBodies[0].replaceChildren(...rows);
}

// ---- the loop -----------------------------------------------------------------------------------

function choose(key) {
  chosen = key;
  makePlots();
  drawPlots();
}

function showChoice(runtimes) {
  if (!runtimes.some(({ key }) => key === chosen)) {
    // Prefers any other runtime to the exporter's.
    const first = runtimes.find(({ runtime }) => runtime.runtime !== "exporter") || runtimes[0];
    choose(first.key);
  }
  $("runtimes").replaceChildren(
    ...runtimes.map(({ key, name, runtime }) => {
      const button = element("button", "", badge(runtime) ? `${name} (${badge(runtime)}!)` : name);
      button.setAttribute("aria-pressed", String(key === chosen));
      button.addEventListener("click", () => {
        choose(key);
        show(runtimes);
      });
      return button;
    }),
  );
}

function show(runtimes) {
  showChoice(runtimes);
  const { program, runtime } = runtimes.find(({ key }) => key === chosen);
  document.title = (badge(runtime) ? `(${badge(runtime)}!) ` : "") + `${program.program}: ${runtime.runtime} - Volt`;
  $("title").textContent = `${program.program} · pid ${program.pid}`;
  showFindings(runtime);
  showFacts(runtime);
  showWorkers(runtime);
  showRoutes(runtime);
  showBlame(runtime);
  drawPlots();
}

let answeredAt = null;

function link(text, isLost) {
  $("link").textContent = text;
  $("link").className = isLost ? "lost" : "";
}

async function refresh() {
  try {
    const answer = await fetch("/live.json", { cache: "no-store", signal: AbortSignal.timeout(5000) });
    if (!answer.ok) throw new Error(`the exporter returned ${answer.status}`);
    const programs = await answer.json();
    const now = Date.now() / 1000;
    const runtimes = programs.flatMap((program) =>
      program.runtimes.map((runtime) => ({
        key: `${program.pid} ${runtime.runtime} ${runtime.started_at_ns}`,
        name: programs.length > 1 ? `${program.program} ${program.pid} ${runtime.runtime}` : runtime.runtime,
        program,
        runtime,
      })),
    );
    for (const key of histories.keys()) if (!runtimes.some((shown) => shown.key === key)) histories.delete(key);
    for (const { key, runtime } of runtimes) remember(key, runtime, now);
    answeredAt = now;
    link(runtimes.length ? "● live" : "no Volt runtime is running", !runtimes.length);
    if (runtimes.length) show(runtimes);
  } catch (error) {
    const since = answeredAt === null ? "" : ` for ${Math.round(Date.now() / 1000 - answeredAt)} s`;
    link(`no response${since}: ${error.message}`, true);
  }
  setTimeout(refresh, INTERVAL_MS);
}

addEventListener("resize", () => plots.forEach((plot) => plot.setSize({ width: plot.root.parentElement.clientWidth, height: 190 })));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => chosen !== null && choose(chosen));
refresh();
