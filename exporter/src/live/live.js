// Requests /live.json once a second, shows the current numbers, and draws their history. All data
// is inserted as text, see text.js.
"use strict";

const INTERVAL_MS = 1000;
const HISTORY_S = 600;
const SLOW_NS = 10e6; // a poll in flight for longer is highlighted
// The distances of the labels of a time axis. Without 120, ten minutes would have two labels.
const TICKS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300];

// ---- charts -------------------------------------------------------------------------------------

// The smallest upper end of an axis, so that zero does not fill the chart, and how its numbers are
// formatted.
const UNITS = {
  "/s": { name: "per second", least: 1, text: count },
  "%": { name: "%", least: 100, text: (n) => Math.round(n) + "%" },
  ns: { name: "", least: 1e3, text: duration },
  "": { name: "", least: 1, text: count },
};

// Name, unit, and the curves: label, colour, the name of the value in a point of the history.
const CHARTS = [
  ["Polls", "/s", [["polls", "--calm", "polls_per_second"]]],
  ["Time of the workers", "%", [
    ["busy", "--good", "busy_percent"],
    ["searching", "--warn", "searching_percent"],
    ["idle", "--dim", "idle_percent"],
  ]],
  ["Schedule delay", "ns", [
    ["p50", "--calm", "delay_p50_ns"],
    ["p99", "--bad", "delay_p99_ns"],
  ]],
  ["Poll duration", "ns", [
    ["p50", "--calm", "poll_p50_ns"],
    ["p99", "--bad", "poll_p99_ns"],
    ["longest in flight", "--other", "in_flight_ns"],
  ]],
  ["Waiting tasks", "", [
    ["global queue", "--bad", "global_queue_len"],
    ["local queues", "--calm", "local_queues_len"],
  ]],
  ["Steals and parks", "/s", [
    ["tasks stolen", "--calm", "tasks_stolen_per_second"],
    ["parks", "--dim", "parks_per_second"],
  ]],
];

// ---- history ------------------------------------------------------------------------------------

// runtime key -> [times, values of each curve…], in the order of CHARTS
const histories = new Map();
let chosen = null; // the key of the selected runtime
let listed = []; // the runtimes on the page
let plots = [];
let isRecalled = false; // whether the history of the exporter was added

const curves = CHARTS.flatMap(([, , curves]) => curves);

function remember(key, point) {
  let history = histories.get(key);
  if (!history) histories.set(key, (history = [[], ...curves.map(() => [])]));
  // The same response may come twice.
  if (point.at === history[0].at(-1)) return;
  // The times of a chart must rise, but a clock may be set back.
  if (point.at < history[0].at(-1)) history.forEach((list) => (list.length = 0));
  history[0].push(point.at);
  curves.forEach(([, , value], i) => history[i + 1].push(point[value] ?? null));
  while (point.at - history[0][0] > HISTORY_S) history.forEach((list) => list.shift());
}

const keyOf = (pid, runtime, startedAt) => `${pid} ${runtime} ${startedAt}`;

// Requests what came before the page was opened.
async function recall() {
  const answer = await fetch("/live/history.json", { cache: "no-store", signal: AbortSignal.timeout(5000) });
  if (!answer.ok) throw new Error(`the exporter returned ${answer.status}`);
  for (const { pid, runtime, started_at_ns, points } of await answer.json()) {
    for (const point of points) remember(keyOf(pid, runtime, started_at_ns), point);
  }
  isRecalled = true;
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

// Returns the indices of the values between two gaps, which no line shows. A runtime that is idle
// most of the time has them.
function isolated(plot, series) {
  const values = plot.data[series];
  const is = (i) => values[i] !== null && values[i] !== undefined;
  return [...values.keys()].filter((i) => is(i) && !is(i - 1) && !is(i + 1));
}

function makePlots() {
  // uPlot keeps each chart, and moves its cursor, until it is destroyed.
  plots.forEach((plot) => plot.destroy());
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
      padding: [null, 26, null, null], // room for half of a label at the end of the time axis
      cursor: { sync: { key: "volt" } },
      scales: { y: { range: (_, low, high) => [0, Math.max(high || 0, least) * 1.05] } },
      axes: [
        { ...axis, size: 30, space: 70, incrs: TICKS_S, values: (_, ticks) => ticks.map(clock) },
        { ...axis, size: 64, values: (_, ticks) => ticks.map(written) },
      ],
      series: [{}, ...curves.map(([label, name]) => ({ label, stroke: color(name), width: 1.5, value, spanGaps: false, points: { filter: isolated, size: 4 } }))],
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

// As in the console.
const LETTERS = { busy: "B", parked: "○", driver: "○", searching: "S", maintenance: "M", stuck: "X", blocking: "K" };

function doing(runtime, worker) {
  if (worker.duty === "stuck" || worker.duty === "blocking") return worker.duty;
  return runtime.is_parked[worker.index] ? "parked" : worker.phase;
}

function fact(name, value) {
  const shown = element("span", "", name + " ");
  shown.append(value instanceof Node ? value : element("b", "", value));
  return shown;
}

function lamps(runtime) {
  const shown = element("span", "lamps");
  shown.title = "○ parked, B busy, S searching, M maintenance, X stuck in a poll, K in block_in_place";
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
    fact("its oldest task", duration(runtime.global_queue.oldest_age_ns)),
    fact("tasks alive", count(runtime.tasks.alive)),
    fact("spawned/s", count(rates && rates.spawned_per_second)),
    fact("schedule delay p99", duration(rates && rates.schedule_delay.p99_ns)),
    fact("poll duration p99", duration(rates && rates.poll_time.p99_ns)),
    fact("spare workers", `${runtime.sentinel.spares_in_use}/${runtime.sentinel.max_spares}`),
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
    const what = worker.duty === "off" ? worker.duty : doing(runtime, worker);
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
    detail(worker.global_queue_interval === 1 ? "every poll" : `every ${worker.global_queue_interval} polls`);
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
    row.append(element("td", "text", spawnLocation(location.spawned_at)));
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

function buttonOf(key) {
  const button = element("button");
  button.dataset.key = key;
  button.addEventListener("click", () => {
    choose(key);
    show(listed);
  });
  return button;
}

function showChoice(runtimes) {
  if (!runtimes.some(({ key }) => key === chosen)) {
    // Prefers any other runtime to the exporter's.
    const first = runtimes.find(({ runtime }) => runtime.runtime !== "exporter") || runtimes[0];
    choose(first.key);
  }
  // A runtime keeps its button: one that is replaced loses the focus, and a click that has begun.
  const former = [...$("runtimes").children];
  const buttons = runtimes.map(({ key, name, runtime }) => {
    const button = former.find((button) => button.dataset.key === key) || buttonOf(key);
    button.textContent = badge(runtime) ? `${name} (${badge(runtime)}!)` : name;
    button.setAttribute("aria-pressed", String(key === chosen));
    return button;
  });
  const isSame = buttons.length === former.length && buttons.every((button, i) => button === former[i]);
  if (!isSame) $("runtimes").replaceChildren(...buttons);
}

function show(runtimes) {
  listed = runtimes;
  showChoice(runtimes);
  const { program, runtime } = runtimes.find(({ key }) => key === chosen);
  document.title = (badge(runtime) ? `(${badge(runtime)}!) ` : "") + `${program.program}: ${runtime.runtime} - Volt`;
  $("title").textContent = `${program.program} · pid ${program.pid}`;
  showFindings(runtime);
  showFacts(runtime);
  showWorkers(runtime);
  showRoutes(runtime);
  showBlame(runtime);
  showTasksOf({ key: chosen, program: program.program, pid: program.pid, runtime: runtime.runtime });
  drawPlots();
}

let answeredAt = null;

function link(text, isLost) {
  $("link").textContent = text;
  $("link").className = isLost ? "lost" : "";
}

async function refresh() {
  try {
    if (!isRecalled) await recall();
    const answer = await fetch("/live.json", { cache: "no-store", signal: AbortSignal.timeout(5000) });
    if (!answer.ok) throw new Error(`the exporter returned ${answer.status}`);
    const programs = await answer.json();
    const now = Date.now() / 1000;
    // A program that did not respond has no runtimes. Those on the page stay, with their history.
    const silent = new Set(programs.filter((program) => !program.runtimes.length).map(({ pid }) => pid));
    const runtimes = programs.flatMap((program) =>
      silent.has(program.pid)
        ? listed.filter((old) => old.program.pid === program.pid)
        : program.runtimes.map((runtime) => ({
            key: keyOf(program.pid, runtime.runtime, runtime.started_at_ns),
            name: programs.length > 1 ? `${program.program} ${program.pid} ${runtime.runtime}` : runtime.runtime,
            program,
            runtime,
          })),
    );
    // The first part of a key is the pid.
    const isKept = (of) => silent.has(parseInt(of)) || runtimes.some(({ key }) => key === of);
    for (const key of histories.keys()) if (!isKept(key)) histories.delete(key);
    for (const { key, runtime } of runtimes) remember(key, runtime.point);
    answeredAt = now;
    if (runtimes.length) show(runtimes);
    const program = runtimes.find(({ key }) => key === chosen)?.program;
    if (!program) link("no Volt runtime responds", true);
    else if (silent.has(program.pid)) link(`no numbers from ${program.program}`, true);
    else link("● live", false);
  } catch (error) {
    const since = answeredAt === null ? "" : ` for ${Math.round(Date.now() / 1000 - answeredAt)} s`;
    link(`no response${since}: ${error.message}`, true);
  }
  setTimeout(refresh, INTERVAL_MS);
}

$("dump").addEventListener("click", requestDump);
$("list").addEventListener("click", requestList);
addEventListener("resize", () => {
  plots.forEach((plot) => plot.setSize({ width: plot.root.parentElement.clientWidth, height: 190 }));
  // The size resets the legend, too.
  drawPlots();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => chosen !== null && choose(chosen));
refresh();
