// Renders the dashboards with Grafana's components: starts real programs, a Prometheus that scrapes
// them, and a Chromium that shows the page of `page.tsx`. Fails if a query fails, if a component
// throws, or if a panel has no data although these programs have its metrics.
//
//   node render.mjs DASHBOARDS PROGRAMS SECONDS [PICTURES]
//
//   DASHBOARDS   the folder `dashboards`
//   PROGRAMS     the folder with the built programs demo, chat, symptoms and volt-exporter
//   SECONDS      how long the programs run before the dashboards are rendered
//   PICTURES     a folder for screenshots; they are made smaller with pngquant if it is installed
//
// Needs prometheus, chromium and chromedriver, and the packages of `package.json` beside it. All
// servers listen on loopback. Stops only what it has started.

import { build } from "esbuild";
import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { basename, extname, join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

const [dashboards, programs, secondsText, pictures] = process.argv.slice(2);
const seconds = Number(secondsText);
const here = import.meta.dirname;
// The scrape interval: short, so that there are rates after a few seconds.
const SCRAPE_SECONDS = 1;
// How long a server may take to start, and a dashboard to be complete, in seconds.
const PATIENCE = 60;
const WIDTH = 1500;
// A cell of Grafana's grid, and the part of the page above the grid, in pixels.
const CELL = 38;
const HEAD = 170;
// Metrics that these programs need not have: a quota of the control group, a Tokio runtime.
const MAY_LACK = /volt_host_throttle|volt_tokio_/;

const work = mkdtempSync(join(tmpdir(), "dashboards-"));
const started = [];

class Failed extends Error {}
const fail = (text) => { throw new Failed(text); };

/** Starts a program, and returns its process and a function that returns its output so far. */
function start(command, args, env = {}) {
  const child = spawn(command, args, { env: { ...process.env, ...env }, stdio: ["ignore", "pipe", "pipe"] });
  let output = "";
  child.stdout.on("data", (data) => { output += data; });
  child.stderr.on("data", (data) => { output += data; });
  child.on("error", (error) => { output += error; });
  started.push(child);
  return { child, output: () => output };
}

/** Waits until the result of a function is truthy. */
async function until(what, condition, details = () => "") {
  for (const end = Date.now() + PATIENCE * 1000; Date.now() < end; await sleep(100)) {
    const result = await condition();
    if (result) return result;
  }
  return fail(`${what}: not within ${PATIENCE} s\n${details()}`);
}

/** Starts a program that prints a line with its address, and returns the address. */
async function startWithAddress(pattern, command, args, env) {
  const { child, output } = start(command, args, env);
  const match = await until(command, () => {
    if (child.exitCode !== null) fail(`${command} exited with ${child.exitCode}: ${output()}`);
    return pattern.exec(output());
  }, output);
  return match[1];
}

async function startPrometheus(targets) {
  const jobs = Object.entries(targets).map(([job, address]) => `  - job_name: ${job}\n    static_configs: [{ targets: ["${address}"] }]\n`);
  const file = join(work, "prometheus.yml");
  writeFileSync(file, `global: { scrape_interval: ${SCRAPE_SECONDS}s, evaluation_interval: ${SCRAPE_SECONDS}s }\nrule_files: ["${resolve(dashboards, "prometheus/volt-rules.yml")}"]\nscrape_configs:\n${jobs.join("")}`);
  // Prometheus does not print its port, so a random one is used; if it is taken, another one.
  for (let attempt = 0; attempt < 5; attempt += 1) {
    const port = 20000 + Math.floor(Math.random() * 10000);
    const { child, output } = start("prometheus", [`--config.file=${file}`, `--storage.tsdb.path=${join(work, `tsdb-${attempt}`)}`, `--web.listen-address=127.0.0.1:${port}`]);
    const isReady = await until("prometheus", async () => child.exitCode !== null ? "exited" : fetch(`http://127.0.0.1:${port}/-/ready`).then((response) => response.ok, () => false), output);
    if (isReady === true) return `http://127.0.0.1:${port}/api/v1`;
  }
  return fail("prometheus did not start");
}

/** Serves the page, the icons and fonts of Grafana's packages, and the dashboards given. */
async function serve(files) {
  const types = { ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".json": "application/json", ".woff2": "font/woff2" };
  const page = `<!doctype html><meta charset="utf-8"><title>Dashboard</title><link rel="icon" href="data:,"><link rel="stylesheet" href="/page.css">
<style>#page { padding: 16px; } .no-data { display: flex; height: 100%; align-items: center; justify-content: center; }</style>
<body><div id="page"></div><script>window.grafanaBootData = { settings: { buildInfo: { version: "13" } }, user: {}, navTree: [] };</script><script type="module" src="/page.js"></script>`;
  const find = (path) => {
    const [, folder, name] = /^\/([^/]*)\/?(.*)$/.exec(path);
    if (path === "/") return page;
    if (folder === "dashboards") return files[basename(name, ".json")];
    if (path.startsWith("/public/build/img/")) {
      const icon = join(here, "node_modules/@grafana/ui/dist", path.replace("/build", ""));
      // The package lacks a few icons, such as that of a button which is visible during a query.
      return existsSync(icon) ? readFileSync(icon) : '<svg xmlns="http://www.w3.org/2000/svg"/>';
    }
    if (path.startsWith("/public/fonts/inter/")) return readFileSync(join(here, "node_modules/@fontsource/inter/files", `inter-latin-${/Medium/.test(path) ? 500 : 400}-${/Italic/.test(path) ? "italic" : "normal"}.woff2`));
    if (path.startsWith("/public/fonts/")) return readFileSync(join(here, "node_modules/@fontsource/roboto-mono/files/roboto-mono-latin-400-normal.woff2"));
    return readFileSync(join(work, "page", basename(path)));
  };
  const server = createServer((request, response) => {
    const { pathname } = new URL(request.url, "http://page");
    try {
      const content = find(pathname);
      response.writeHead(200, { "content-type": types[extname(pathname)] ?? "text/html" }).end(content);
    } catch (error) {
      response.writeHead(404).end(`${error}`);
    }
  });
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
  server.unref();
  return `http://127.0.0.1:${server.address().port}`;
}

/** Opens a browser, and returns a function that sends a command of the WebDriver protocol. */
async function openBrowser() {
  const port = await startWithAddress(/started successfully on port (\d+)/, "chromedriver", ["--port=0"]);
  const send = async (method, path, body) => {
    const response = await fetch(`http://127.0.0.1:${port}/session${path}`, { method, headers: { "content-type": "application/json" }, body: body && JSON.stringify(body) });
    const { value } = await response.json();
    return value?.error ? fail(`chromedriver: ${value.message}`) : value;
  };
  const args = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars", `--user-data-dir=${join(work, "browser")}`];
  const { sessionId } = await send("POST", "", { capabilities: { alwaysMatch: { "goog:loggingPrefs": { browser: "ALL" }, "goog:chromeOptions": { args } } } });
  return { close: () => send("DELETE", `/${sessionId}`), send: (method, path, body) => send(method, `/${sessionId}${path}`, body) };
}

/** Shows a dashboard, and returns what the page reports when each panel has its data. */
async function show(browser, site, name, theme, height, query, picture) {
  await browser.send("POST", "/goog/cdp/execute", { cmd: "Emulation.setDeviceMetricsOverride", params: { width: WIDTH, height, deviceScaleFactor: 1, mobile: false } });
  await browser.send("POST", "/url", { url: `${site}/?dashboard=${name}&theme=${theme}&${query}` });
  let report;
  await until(`the dashboard ${name}`, async () => {
    report = await browser.send("POST", "/execute/sync", { script: "return window.report ? report() : null", args: [] });
    return report?.done;
  }, () => JSON.stringify(report?.panels.filter(({ state, isDrawn }) => state !== "Done" || !isDrawn), null, 1)).catch((error) => { if (!report) throw error; });
  const log = await browser.send("POST", "/se/log", { type: "browser" });
  report.failures.push(...log.filter(({ level }) => level === "SEVERE").map(({ message }) => message));
  if (picture) {
    const { data } = await browser.send("POST", "/goog/cdp/execute", { cmd: "Page.captureScreenshot", params: { format: "png" } });
    writeFileSync(picture, Buffer.from(data, "base64"));
    spawnSync("pngquant", ["--force", "--output", picture, picture]);
  }
  return report;
}

/** Returns what is wrong with a dashboard as it was shown. */
async function faults(report, dashboard, api) {
  const found = [...new Set(report.failures)];
  for (const { title, state, values, isDrawn, hasThrown, isCut } of report.panels) {
    if (!isDrawn) found.push(`the panel "${title}" ${hasThrown ? "throws" : "draws nothing"}`);
    if (isCut) found.push(`the title "${title}" is cut`);
    if (state === "Error" || values > 0) continue;
    const names = [...new Set(dashboard.panels.find((panel) => panel.title === title).targets.flatMap(({ expr }) => expr.match(/\bvolt_\w+/g) ?? []))];
    const answer = await (await fetch(`${api}/query?${new URLSearchParams({ query: `count({__name__=~"${names.join("|")}"})` })}`)).json();
    if (names.every((name) => MAY_LACK.test(name)) && !answer.data.result.length) console.log(`no data, as these programs have no ${names.join(", ")}: "${title}"`);
    else found.push(`the panel "${title}" has no data`);
  }
  return found;
}

/** Returns a copy of a dashboard with three faults, and what they must be reported as. */
function faulty(dashboard) {
  const copy = structuredClone(dashboard);
  const stats = copy.panels.filter(({ type }) => type === "stat");
  stats[0].targets[0].expr = "max(volt_no_such_metric)";
  stats[1].targets[0].expr = "max(volt_worker_parked";
  delete stats[2].options.reduceOptions;
  return { copy, wanted: [`"${stats[0].title}" has no data`, "parse error", `"${stats[2].title}" throws`] };
}

/** Returns what is wrong with the queries of a dashboard on which one program is selected. */
function notOf(program, { evaluated, failures }) {
  const found = [...failures];
  for (const expression of evaluated) {
    const selectors = expression.match(/\bvolt_\w+\{[^}]*\}/g) ?? [];
    if (!selectors.length || expression.includes("$") || selectors.some((selector) => !selector.includes(`program=~"${program}"`))) found.push(`not of ${program}: ${expression}`);
  }
  return found;
}

async function main() {
  const files = Object.fromEntries(readdirSync(join(dashboards, "grafana")).filter((name) => name.endsWith(".json")).map((name) => [basename(name, ".json"), readFileSync(join(dashboards, "grafana", name), "utf8")]));
  const broken = faulty(JSON.parse(Object.values(files)[0]));
  mkdirSync(join(work, "sockets"), { mode: 0o700 });
  const sidecar = { VOLT_SOCKET_DIR: join(work, "sockets") };
  const alone = { VOLT_SOCKET_DIR: join(work, "elsewhere") };
  const program = (name) => join(programs, name);
  const duration = `${seconds + 300}`;
  const page = /^metrics http:\/\/([^/ ]+)/m;
  const demo = await startWithAddress(page, program("demo"), ["--headless", "--connections", "8", "--seconds", duration, "--metrics", "127.0.0.1:0"], alone);
  const exporter = await startWithAddress(page, program("volt-exporter"), ["--listen", "127.0.0.1:0", "--discover", sidecar.VOLT_SOCKET_DIR]);
  const chat = await startWithAddress(/(127\.0\.0\.1:\d+)/, program("chat"), ["--seconds", duration, "--chaos", "0.001"], sidecar);
  start(program("chat"), ["--load", chat, "--seconds", duration], alone);
  start(program("symptoms"), ["stalled-poll", "--seconds", duration], sidecar);
  const api = await startPrometheus({ demo, sidecar: exporter });
  const begun = Date.now();

  await build({
    entryPoints: [join(here, "page.tsx")], outdir: join(work, "page"), bundle: true, splitting: true, format: "esm", jsx: "automatic", define: { "process.env.NODE_ENV": '"production"' },
    loader: { ".woff2": "dataurl", ".svg": "dataurl", ".ttf": "dataurl" }, logLevel: "error",
  });
  const site = await serve({ ...files, faulty: JSON.stringify(broken.copy) });
  const browser = await openBrowser();
  try {
    await sleep(Math.max(0, begun + seconds * 1000 - Date.now()));
    const to = Date.now();
    const query = new URLSearchParams({ api, scrape: `${SCRAPE_SECONDS}`, from: `${begun}`, to: `${to}` });
    const found = [];
    for (const [name, text] of Object.entries(files)) {
      const dashboard = JSON.parse(text);
      const height = Math.max(...dashboard.panels.map(({ gridPos: { y, h } }) => y + h)) * CELL + HEAD;
      for (const theme of ["light", "dark"]) {
        const report = await show(browser, site, name, theme, height, query, pictures && join(pictures, `${name}-${theme}.png`));
        found.push(...(await faults(report, dashboard, api)).map((fault) => `${name}, ${theme}: ${fault}`));
        const sum = (key) => report.panels.reduce((total, panel) => total + panel[key], 0);
        console.log(`${name}, ${theme}: ${report.panels.length} panels, ${report.evaluated.length} queries, ${sum("series")} series, ${sum("values")} values`);
      }
    }
    for (const name of Object.keys(files)) {
      const selected = new URLSearchParams([...query, ["var-job", "sidecar"], ["var-program", "chat"]]);
      const report = await show(browser, site, name, "dark", 1000, selected);
      if (!report.done) found.push(`${name}: not all panels are complete with one program`);
      found.push(...notOf("chat", report).map((fault) => `${name}: ${fault}`));
      console.log(`${name}, one program: ${report.evaluated.length} queries`);
    }
    if (found.length) fail(found.join("\n"));
    const reported = (await faults(await show(browser, site, "faulty", "dark", 1000, query), broken.copy, api)).join("\n");
    for (const wanted of broken.wanted) if (!reported.includes(wanted)) fail(`a fault put in is not reported: ${wanted}\nreported: ${reported}`);
    console.log(`${broken.wanted.length} faults put in were found`);
  } finally {
    await browser.close();
  }
}

try {
  await main();
} catch (error) {
  console.error(`FAILED: ${error instanceof Failed ? error.message : error.stack}`);
  process.exitCode = 1;
} finally {
  for (const child of started) child.kill();
  await Promise.all(started.map((child) => child.exitCode ?? child.signalCode ?? new Promise((exited) => child.on("exit", exited))));
  rmSync(work, { recursive: true, force: true });
}
