// The data source of the page: queries Prometheus over HTTP, and makes the frames that Grafana's
// own Prometheus data source would make. That one needs Grafana's server, which cannot be had as a
// package: it sends its queries there, and the server makes the frames.

import {
  DataSourceApi, FieldType, LoadingState,
  type DataFrame, type DataQuery, type DataQueryRequest, type DataQueryResponse, type DataSourceInstanceSettings, type Field, type MetricFindValue, type PanelData, type ScopedVars,
} from "@grafana/data";
import { sceneGraph } from "@grafana/scenes";
import { from, map, catchError, of, type Observable } from "rxjs";

export interface Query extends DataQuery {
  expr: string;
  legendFormat: string;
  format?: "heatmap" | "table" | "time_series";
  instant?: boolean;
}

type Labels = Record<string, string>;
interface Sample { metric: Labels; value?: [number, string]; values?: [number, string][] }

/** A failed request, and the expression that caused it. */
export const failures: string[] = [];

/** Every expression that was evaluated, with its variables replaced. */
export const evaluated: string[] = [];

export class Prometheus extends DataSourceApi<Query> {
  constructor(settings: DataSourceInstanceSettings, private api: string, private scrapeSeconds: number) {
    super(settings);
    this.interval = `${scrapeSeconds}s`;
  }

  query(request: DataQueryRequest<Query>): Observable<DataQueryResponse> {
    return from(Promise.all(request.targets.map((target) => this.frames(target, request))).then((frames) => ({ data: frames.flat() })));
  }

  // The queries of variables: `label_values(SELECTOR, LABEL)`.
  async metricFindQuery(query: { query: string }, options?: { scopedVars?: ScopedVars; range?: DataQueryRequest["range"] }): Promise<MetricFindValue[]> {
    const [, selector, label] = /^label_values\((.*),\s*(\w+)\)$/.exec(query.query) ?? [];
    if (!selector) throw new Error(`not a query of a variable: ${query.query}`);
    const parameters: Labels = { "match[]": interpolate(selector, options?.scopedVars) };
    if (options?.range) Object.assign(parameters, { start: `${options.range.from.unix()}`, end: `${options.range.to.unix()}` });
    const values = (await this.get(`label/${label}/values`, parameters)) as string[];
    return values.map((text) => ({ text }));
  }

  async testDatasource() {
    return { status: "success", message: "" };
  }

  private async frames(target: Query, request: DataQueryRequest<Query>): Promise<DataFrame[]> {
    const step = request.intervalMs / 1000;
    // Grafana's rule: a rate needs four scrapes, of which one may fail.
    const rate = Math.max(step + this.scrapeSeconds, 4 * this.scrapeSeconds);
    const expr = interpolate(target.expr, { ...request.scopedVars, __rate_interval: { text: "", value: `${rate}s` } });
    evaluated.push(expr);
    // Grafana moves the range to multiples of the step.
    const align = (seconds: number) => Math.floor(seconds / step) * step;
    const [start, end] = [align(request.range.from.valueOf() / 1000), align(request.range.to.valueOf() / 1000)];
    const answer = target.instant
      ? await this.get("query", { query: expr, time: `${request.range.to.valueOf() / 1000}` })
      : await this.get("query_range", { query: expr, start: `${start}`, end: `${end}`, step: `${step}` });
    const samples = (answer as { result: Sample[] }).result;
    if (target.format === "table") return samples.length ? [table(samples, target, request.targets.length > 1)] : [];
    const series = samples.map((sample) => frame(sample, target, step));
    return target.format === "heatmap" ? buckets(series, target) : series;
  }

  private async get(path: string, parameters: Labels): Promise<unknown> {
    const response = await fetch(`${this.api}/${path}?${new URLSearchParams(parameters)}`);
    const answer = await response.json();
    if (answer.status !== "success") {
      const failure = `${answer.error}: ${parameters.query ?? parameters["match[]"]}`;
      failures.push(failure);
      throw new Error(failure);
    }
    return answer.data;
  }
}

/** Runs a request, as Grafana's `runRequest` does for data sources that respond once. */
export function runRequest(source: DataSourceApi, request: DataQueryRequest): Observable<PanelData> {
  const stateless = { timeRange: request.range, request };
  return from(source.query(request) as Observable<DataQueryResponse>).pipe(
    map((response): PanelData => ({ ...stateless, state: LoadingState.Done, series: response.data })),
    catchError((error: Error) => of<PanelData>({ ...stateless, state: LoadingState.Error, series: [], errors: [{ message: error.message }] })),
  );
}

// Replaces the variables. Like Grafana's Prometheus data source, escapes the selected values, which
// are compared with `=~`, and joins several of them with `|`.
function interpolate(text: string, scoped: ScopedVars = {}): string {
  const escape = (value: string) => value.replace(/\\/g, "\\\\\\\\").replace(/[$^*{}[\]'+?.()|]/g, "\\\\$&");
  const format = (value: unknown, variable: { multi?: boolean; includeAll?: boolean }) => {
    if (typeof value === "string") return variable.multi || variable.includeAll ? escape(value) : value;
    const values = (value as string[]).map(escape);
    return values.length === 1 ? values[0] : `(${values.join("|")})`;
  };
  const scene = scoped.__sceneObject?.value?.valueOf();
  return scene ? sceneGraph.interpolate(scene, text, scoped, format as never) : text;
}

function number(text: string): number {
  return text === "+Inf" ? Infinity : text === "-Inf" ? -Infinity : Number(text);
}

// The name that Grafana's server gives a series: its legend with the labels' values, or the series
// as Prometheus writes it.
function nameOf(labels: Labels, target: Query): string {
  if (target.legendFormat) return target.legendFormat.replace(/\{\{\s*(.+?)\s*\}\}/g, (_, label) => labels[label] ?? "");
  const { __name__ = "", ...rest } = labels;
  const written = Object.entries(rest).map(([name, value]) => `${name}="${value}"`);
  return written.length ? `${__name__}{${written.join(", ")}}` : __name__ || target.expr;
}

function frame(sample: Sample, target: Query, step: number): DataFrame {
  const points = sample.values ?? (sample.value ? [sample.value] : []);
  return {
    refId: target.refId,
    length: points.length,
    fields: [
      { name: "Time", type: FieldType.time, config: { interval: step * 1000 }, values: points.map(([seconds]) => seconds * 1000) },
      { name: "Value", type: FieldType.number, labels: sample.metric, config: { displayNameFromDS: nameOf(sample.metric, target) }, values: points.map(([, value]) => number(value)) },
    ],
  };
}

// One row for each series, one column for each label.
function table(samples: Sample[], target: Query, isOneOfSeveral: boolean): DataFrame {
  const names = [...new Set(samples.flatMap((sample) => Object.keys(sample.metric)))].sort();
  const fields: Field[] = [
    { name: "Time", type: FieldType.time, config: {}, values: samples.map((sample) => sample.value![0] * 1000) },
    ...names.map((name) => ({ name, type: FieldType.string, config: { filterable: true }, values: samples.map((sample) => sample.metric[name] ?? "") })),
    { name: isOneOfSeveral ? `Value #${target.refId}` : "Value", type: FieldType.number, config: {}, values: samples.map((sample) => number(sample.value![1])) },
  ];
  return { refId: target.refId, length: samples.length, fields };
}

// One frame with a column for each bucket, in ascending order. Prometheus' buckets contain the
// smaller ones, Grafana's heat map does not.
function buckets(series: DataFrame[], target: Query): DataFrame[] {
  const bound = (frame: DataFrame) => number(frame.fields[1].labels!.le);
  const sorted = [...series].sort((a, b) => bound(a) - bound(b));
  if (!sorted.length) return [];
  const times = [...new Set(sorted.flatMap((frame) => frame.fields[0].values as number[]))].sort((a, b) => a - b);
  const at = sorted.map((frame) => new Map((frame.fields[0].values as number[]).map((time, index) => [time, frame.fields[1].values[index] as number])));
  const fields: Field[] = sorted.map((frame, index) => ({
    ...frame.fields[1],
    name: frame.fields[1].labels!.le,
    values: times.map((time) => Math.max(0, (at[index].get(time) ?? 0) - (index ? (at[index - 1].get(time) ?? 0) : 0))),
  }));
  return [{ refId: target.refId, length: times.length, fields: [{ ...sorted[0].fields[0], values: times }, ...fields] }];
}
