// The page that shows one dashboard. It reads the dashboard's JSON as Grafana does, and makes a
// scene of it: variables, time range, rows, and a panel with its queries at each place of the grid.
// Scenes are what Grafana itself shows dashboards with.
//
// `?dashboard=NAME&theme=dark&api=URL&scrape=SECONDS&from=MS&to=MS`, and `var-NAME=VALUE` for the
// value of a variable. The script `render.mjs` opens the page, and calls `window.report` until
// every panel is complete.

import { EventBusSrv, LoadingState, ThemeContext, createTheme, type DataSourceInstanceSettings, type DataTransformerConfig } from "@grafana/data";
import { config, setAppEvents, setDataSourceSrv, setRunRequest, setTemplateSrv } from "@grafana/runtime";
import {
  DataSourceVariable, EmbeddedScene, QueryVariable, SceneDataTransformer, SceneGridItem, SceneGridLayout, SceneGridRow, SceneQueryRunner, SceneTimeRange, SceneVariableSet, VariableValueSelectors,
  VizPanel, sceneGraph, type SceneGridItemLike,
} from "@grafana/scenes";
import { GlobalStyles, PortalContainer } from "@grafana/ui";
import { createRoot } from "react-dom/client";
import { BrowserRouter } from "react-router-dom";
import "react-grid-layout/css/styles.css";
import { KINDS, register } from "./panels";
import { Prometheus, evaluated, failures, runRequest, type Query } from "./source";

interface Panel {
  id: number; type: string; title: string; description?: string; gridPos: { x: number; y: number; w: number; h: number };
  datasource: { type: string; uid: string }; targets: Query[]; options: object; fieldConfig: VizPanel["state"]["fieldConfig"]; transformations?: DataTransformerConfig[]; interval?: string; collapsed?: boolean;
}
interface Variable { name: string; label: string; type: string; query: string | { query: string; refId: string }; datasource?: Panel["datasource"]; multi: boolean; includeAll: boolean; allValue?: string; regex: string; sort: number; refresh: number }
interface Dashboard { title: string; panels: Panel[]; templating: { list: Variable[] }; annotations: { list: { expr: string; datasource: Panel["datasource"] }[] } }
/** The report that the script reads: whether all panels are complete, and their contents. */
interface Report { done: boolean; failures: string[]; evaluated: string[]; panels: { title: string; type: string; state: string; series: number; values: number; text: string; isCut: boolean; isDrawn: boolean; hasThrown: boolean }[] }

const parameters = new URLSearchParams(location.search);
const theme = createTheme({ colors: { mode: parameters.get("theme") as "dark" | "light" } });
const errors: string[] = [];
window.addEventListener("error", (event) => errors.push(event.message));
window.addEventListener("unhandledrejection", (event) => errors.push(String(event.reason)));

function variable(from: Variable) {
  const { name, label } = from;
  if (from.type === "datasource") return new DataSourceVariable({ name, label, pluginId: from.query as string });
  const all = from.includeAll ? ["$__all"] : [];
  const values = parameters.getAll(`var-${name}`).length ? parameters.getAll(`var-${name}`) : all;
  return new QueryVariable({
    name, label, query: from.query as never, datasource: from.datasource, isMulti: from.multi, includeAll: from.includeAll, allValue: from.allValue, regex: from.regex, sort: from.sort,
    refresh: from.refresh, value: values, text: values,
  });
}

function panel(from: Panel) {
  if (!KINDS.includes(from.type)) throw new Error(`"${from.title}" is a ${from.type}, which this page cannot draw`);
  const queries = new SceneQueryRunner({ datasource: from.datasource, queries: from.targets, maxDataPointsFromWidth: true, minInterval: from.interval });
  const $data = from.transformations ? new SceneDataTransformer({ $data: queries, transformations: from.transformations }) : queries;
  return new VizPanel({ key: `panel-${from.id}`, title: from.title, description: from.description, pluginId: from.type, options: from.options, fieldConfig: from.fieldConfig, $data });
}

function item(from: Panel): SceneGridItem {
  const { x, y, w, h } = from.gridPos;
  return new SceneGridItem({ key: `item-${from.id}`, x, y, width: w, height: h, body: panel(from) });
}

// In the JSON, the panels of an open row follow it.
function grid(panels: Panel[]): SceneGridItemLike[] {
  const children: SceneGridItemLike[] = [];
  let row: { title: string; y: number; id: number; children: SceneGridItem[] } | undefined;
  const close = () => {
    if (row) children.push(new SceneGridRow({ key: `row-${row.id}`, title: row.title, y: row.y, isCollapsible: true, isCollapsed: false, children: row.children }));
  };
  for (const one of panels) {
    if (one.type === "row") {
      close();
      row = { title: one.title, y: one.gridPos.y, id: one.id, children: [] };
    } else if (row) row.children.push(item(one));
    else children.push(item(one));
  }
  close();
  return children;
}

function scene(dashboard: Dashboard): EmbeddedScene {
  const time = (name: string) => new Date(Number(parameters.get(name))).toISOString();
  return new EmbeddedScene({
    $timeRange: new SceneTimeRange({ from: time("from"), to: time("to"), timeZone: "utc" }),
    $variables: new SceneVariableSet({ variables: dashboard.templating.list.map(variable) }),
    controls: [new VariableValueSelectors({})],
    body: new SceneGridLayout({ isDraggable: false, isResizable: false, isLazy: false, children: grid(dashboard.panels) }),
  });
}

// Whether a plot has any colour; its axes and texts are grey.
function isPainted(element: Element): boolean {
  const canvas = element.querySelector<HTMLCanvasElement>(".uplot canvas");
  if (!canvas?.width || !canvas.height) return false;
  const { data } = canvas.getContext("2d")!.getImageData(0, 0, canvas.width, canvas.height);
  for (let at = 0; at < data.length; at += 4) {
    const [red, green, blue, alpha] = data.subarray(at, at + 4);
    if (alpha > 100 && Math.max(red, green, blue) - Math.min(red, green, blue) > 50) return true;
  }
  return false;
}

// Whether a panel that has data shows it. A component that throws is replaced with an alert.
const DRAWN: Record<string, (element: Element, text: string) => boolean> = {
  timeseries: isPainted, heatmap: isPainted, "state-timeline": isPainted,
  stat: (_, text) => /^-?[\d.]/.test(text),
  table: (element) => element.querySelectorAll("[role=row]").length > 1,
};

function report(scene: EmbeddedScene, dashboard: Dashboard): Report {
  const panels = dashboard.panels.filter(({ type }) => type !== "row").map(({ id, title, type }) => {
    const object = sceneGraph.findByKey(scene, `panel-${id}`);
    const { data } = sceneGraph.getData(object).state;
    const fields = (data?.series ?? []).flatMap((frame) => frame.fields.filter((field) => field.type !== "time"));
    const element = document.querySelector(`[data-viz-panel-key="panel-${id}"]`);
    const text = (element as HTMLElement | null)?.innerText ?? "";
    const values = fields.reduce((sum, field) => sum + field.values.filter((value) => value !== null && value !== undefined && !Number.isNaN(value)).length, 0);
    const isDrawn = values === 0 ? text.includes("No data") : DRAWN[type](element!, text.slice(title.length).trim());
    const isCut = [...(element?.querySelectorAll("h2") ?? [])].some((title) => title.scrollWidth > title.clientWidth + 1);
    const hasThrown = !!element?.querySelector("[role=alert]");
    return { title, type, state: data?.state ?? LoadingState.NotStarted, series: fields.length, values, text, isCut, isDrawn, hasThrown };
  });
  const isDone = panels.every(({ state, isDrawn, hasThrown }) => (state === LoadingState.Done || state === LoadingState.Error) && (isDrawn || hasThrown));
  return { done: isDone, failures: [...failures, ...errors], evaluated, panels };
}

async function show() {
  const dashboard: Dashboard = await (await fetch(`dashboards/${parameters.get("dashboard")}.json`)).json();
  const settings = { uid: "prometheus", name: "Prometheus", type: "prometheus", access: "proxy", jsonData: {}, readOnly: false, meta: { id: "prometheus", name: "Prometheus", info: { logos: { small: "", large: "" } } } } as unknown as DataSourceInstanceSettings;
  const source = new Prometheus(settings, parameters.get("api")!, Number(parameters.get("scrape")));
  Object.assign(config, { theme2: theme });
  setDataSourceSrv({ get: async () => source, getList: () => [settings], getInstanceSettings: () => settings, reload() {}, registerRuntimeDataSource() {} } as never);
  setAppEvents(new EventBusSrv());
  setRunRequest(runRequest as never);
  setTemplateSrv({ getVariables: () => [], replace: (text = "") => text, containsTemplate: () => false, updateTimeRange() {} });
  register();
  const root = scene(dashboard);
  root.activate();
  (window as unknown as { report: () => Report }).report = () => report(root, dashboard);
  createRoot(document.getElementById("page")!).render(
    <ThemeContext.Provider value={theme}>
      <BrowserRouter>
        <GlobalStyles />
        <h1>{dashboard.title}</h1>
        <root.Component model={root} />
        <PortalContainer />
      </BrowserRouter>
    </ThemeContext.Provider>,
  );
}

void show();
