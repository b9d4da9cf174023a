// The section "Tasks": a dump, or a list of tasks. Each is requested when the user presses its
// button, and never otherwise, because a dump polls each waiting task once.
"use strict";

// Longer than the exporter waits for a dump.
const TASKS_TIMEOUT_MS = 60_000;
const OPEN_AT_FIRST = 3; // groups
const INDENTED = 12; // levels of a chain
const NAMED = 3; // tasks of a group
const LONG_POLL_NS = 10e6; // a longer poll is highlighted

let tasksOf = null; // the runtime on the page: key, program, pid, runtime
let isRequesting = false;

// Called with each response of /live.json. A reply is for one runtime, so another one hides it.
function showTasksOf(runtime) {
  if (tasksOf !== null && tasksOf.key !== runtime.key) $("found").replaceChildren();
  tasksOf = runtime;
  $("dump").disabled = $("list").disabled = isRequesting;
}

async function requestTasks(path, parameters, render, button) {
  if (isRequesting || tasksOf === null) return;
  const { key, program, pid, runtime } = tasksOf;
  const query = new URLSearchParams({ program, pid, runtime, filter: $("filter").value, ...parameters });
  const label = button.textContent;
  isRequesting = $("dump").disabled = $("list").disabled = true;
  button.textContent = "Waiting …";
  let shown;
  try {
    // The header shows that the request is from this page, and not from another website.
    const answer = await fetch(`${path}?${query}`, {
      cache: "no-store",
      headers: { "Volt-Request": "1" },
      signal: AbortSignal.timeout(TASKS_TIMEOUT_MS),
    });
    const reply = await answer.json().catch(() => ({ error: `the exporter returned ${answer.status}` }));
    shown = answer.ok ? render(reply.runtimes[0]) : [element("p", "refused", reply.error)];
  } catch (error) {
    shown = [element("p", "refused", `no response: ${error.message}`)];
  }
  isRequesting = $("dump").disabled = $("list").disabled = false;
  button.textContent = label;
  // The user may have chosen another runtime in the meantime.
  if (tasksOf.key === key) $("found").replaceChildren(...shown);
}

// ---- a dump -------------------------------------------------------------------------------------

const requestDump = () => requestTasks("/live/dump.json", {}, renderDump, $("dump"));

const nameOf = (task) => `#${task.id}` + (task.name ? ` ${JSON.stringify(task.name)}` : "");

const placeOf = (link) => (link.file ? link.file + (link.line ? `:${link.line}` : "") : "");

// Returns the operation that is pending, and the line of the application that awaits it. A chain is
// a tree in preorder; the callers of its last link are the nearest previous links of smaller depth.
function innermost(chain) {
  const last = chain[chain.length - 1];
  if (!last) return null;
  let line = null;
  let below = Infinity;
  for (const link of [...chain].reverse()) {
    if (link.depth >= below) continue;
    below = link.depth;
    if (!line && link.is_user_code && link.file) line = link;
  }
  return { operation: last.function || "", place: placeOf(line || last) };
}

function renderChain(chain) {
  const list = element("ol", "chain");
  for (const link of chain) {
    const item = element("li", link.is_user_code ? "own" : "");
    item.style.setProperty("--depth", Math.min(link.depth, INDENTED));
    const name = link.function || (link.file ? "" : "(name unknown)");
    const times = link.times > 1 ? ` × ${link.times}` : "";
    item.append(name, " ", element("code", "", placeOf(link)), times);
    list.append(item);
  }
  return list;
}

// Renders a group, a running task or a future of `block_on`: what it does and for how long, the
// line, where it began, and more when it is opened.
function renderWait({ head, isSlow, chain, began, names, details }) {
  const box = element("details", "wait");
  const summary = element("summary");
  const at = innermost(chain);
  summary.append(element("b", isSlow ? "slow" : "", head));
  if (at) summary.append(" ", element("span", "", at.operation), " ", element("code", "", at.place));
  // The first detail is the most important one: the holder of the lock.
  if (details[0]) summary.append(" ", element("span", "holder", details[0]));
  box.append(summary, element("p", "began", began));
  if (names) box.append(element("p", "began", names));
  if (chain.length) box.append(renderChain(chain));
  // The others: the first one is in the summary.
  for (const detail of details.slice(1)) box.append(element("p", "", detail));
  return box;
}

function groupOf(group, details) {
  const [newest, oldest] = [duration(group.newest_ns), duration(group.oldest_ns)];
  const span = group.tasks === 1 || newest === oldest ? oldest : `${newest} to ${oldest}`;
  const more = group.tasks > NAMED ? ", …" : "";
  return {
    head: `${counted(group.tasks, "task")} waiting for ${span}`,
    chain: group.chain,
    began: `spawned at ${spawnLocation(group.spawned_at)}`,
    names: group.examples.slice(0, NAMED).map(nameOf).join(", ") + more,
    details,
  };
}

function runningOf({ task, worker, for_ns, spawned_at, chain }) {
  return {
    head: `1 task running for ${duration(for_ns)} on worker ${worker}`,
    isSlow: for_ns > LONG_POLL_NS,
    chain,
    began: `spawned at ${spawnLocation(spawned_at)}`,
    names: nameOf(task),
    details: [],
  };
}

function blockOnOf({ called_at, waiting_ns, chain, error }) {
  const state = waiting_ns === null ? "being polled" : `waiting for ${duration(waiting_ns)}`;
  return { head: `block_on ${state}`, chain, began: `called at ${called_at}`, details: error ? [`(${error})`] : [] };
}

function renderDump(dump) {
  // A task that was woken after the waiting ones were counted may also be in a queue.
  const queued = Math.min(dump.queued, Math.max(0, dump.alive - dump.waiting));
  const numbers = [`${count(dump.waiting)} waiting`, `${count(queued)} queued`, `${dump.running.length} running at its end`];
  const text = `Dumped ${counted(dump.alive, "task")} at ${clock(Date.now() / 1000)}, in ${duration(dump.took_ns)}: ${numbers.join(", ")}.`;
  const waits = [
    ...dump.running.map(runningOf),
    ...dump.groups.map((group, i) => groupOf(group, dump.details[i])),
    ...dump.block_on.map(blockOnOf),
  ].map(renderWait);
  waits.slice(0, OPEN_AT_FIRST).forEach((wait) => (wait.open = true));
  const nothing = waits.length ? [] : [element("p", "", "No waiting or running task matches the filter.")];
  return [element("p", "", text), ...dump.notes.map((note) => element("p", "note", `Note: ${note}`)), ...nothing, ...waits];
}

// ---- a list -------------------------------------------------------------------------------------

const requestList = () => requestTasks("/live/tasks.json", { rank: $("rank").value }, renderList, $("list"));

const AWAITED = { lock: "a lock", permits: "permits", notice: "a notification", message: "a message", room: "room in a channel", value: "a value", others: "other tasks" };

function awaited(task) {
  if (task.awaited_task) return `end of #${task.awaited_task}`;
  if (!task.awaits) return "";
  const held = task.held_by ? `, held by #${task.held_by}` : "";
  return (AWAITED[task.awaits] || task.awaits) + (task.awaits_at ? ` at ${task.awaits_at}` : "") + held;
}

const since = (ns) => (ns === null ? "-" : `${duration(ns)} ago`);

// Heading, the rank that orders by the column, and the text of a task.
const COLUMNS = [
  ["longest poll", "longest", (task) => duration(task.longest_ns)],
  ["delay", "delay", (task) => duration(task.delay_ns)],
  ["busy", "busy", (task) => duration(task.busy_ns)],
  ["polls", "polls", (task) => count(task.polls)],
  ["last wake-up", "woken", (task) => since(task.woken_ago_ns)],
  ["age", "age", (task) => duration(task.age_ns)],
];

function stateOf(task) {
  return task.in_poll_ns === null ? task.state : `${task.state} for ${duration(task.in_poll_ns)}`;
}

// Two rows for each task: the numbers, and the places in the code, which are long.
function renderTask(task, classes) {
  const [numbers, places] = [element("tr"), element("tr", "places")];
  numbers.append(element("td", "text", nameOf(task)), element("td", "text", stateOf(task)));
  COLUMNS.forEach(([, , text], i) => numbers.append(element("td", classes[i], text(task))));
  const awaits = awaited(task);
  const text = (awaits ? `awaits ${awaits}; ` : "") + `spawned at ${spawnLocation(task.spawned_at)}`;
  const place = element("td", "text", text);
  place.colSpan = COLUMNS.length + 2;
  places.append(place);
  return [numbers, places];
}

function renderList(list) {
  // A narrow screen shows only the number that orders the list.
  const classes = COLUMNS.map(([, rank]) => (rank === list.query.rank ? "" : "detail"));
  const table = element("table");
  const head = table.createTHead().insertRow();
  head.append(element("th", "text", "task"), element("th", "text", "state"));
  COLUMNS.forEach(([heading], i) => head.append(element("th", classes[i], heading)));
  table.createTBody().append(...list.rows.flatMap((task) => renderTask(task, classes)));
  // Some of the tasks that were chosen may have completed in the meantime.
  const others = Math.max(0, list.matching - list.query.limit);
  const notes = [`Listed ${counted(list.rows.length, "task")} of ${count(list.alive)} at ${clock(Date.now() / 1000)}.`];
  if (others) notes.push(`${counted(others, "more task")} left out: select fewer with a filter.`);
  const unseen = Math.max(0, list.alive - list.seen);
  if (unseen) notes.push(`${counted(unseen, "task")} cannot be listed: queued for the first poll, or in it.`);
  if (list.is_cut) notes.push("Some tasks were not read because there are too many.");
  return [element("p", "", notes.join(" ")), table];
}
