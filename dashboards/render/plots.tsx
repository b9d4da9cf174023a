// The two kinds of panel whose plots no package of Grafana exports: heat maps and state timelines.
// Grafana's components draw their axes, legends and layout; the cells are drawn here.

import { FieldType, getFieldDisplayName, getValueFormat, formattedValueToString, type DataFrame, type Field, type PanelProps } from "@grafana/data";
import { AxisPlacement, ScaleDirection, ScaleOrientation, LegendDisplayMode } from "@grafana/schema";
import { UPlotChart, UPlotConfigBuilder, VizLayout, VizLegend, useTheme2, type VizLegendItem } from "@grafana/ui";
import { interpolateOranges } from "d3-scale-chromatic";
import { useMemo, type ReactElement } from "react";
import type uPlot from "uplot";

interface Row { name: string; color(index: number): string | undefined }
interface Grid { times: number[]; rows: Row[]; gap: number; rowHeight: number; label(row: number): string; isLabelled(row: number): boolean }

// Draws a cell for each time and row that has a colour.
function cells(u: uPlot, { times, rows, gap, rowHeight }: Grid) {
  const { left, top, width, height } = u.bbox;
  const high = height / rows.length;
  u.ctx.save();
  u.ctx.beginPath();
  u.ctx.rect(left, top, width, height);
  u.ctx.clip();
  rows.forEach((row, at) => {
    const y = Math.round(top + high * at + (high * (1 - rowHeight)) / 2);
    for (let index = 0; index < times.length; index += 1) {
      const color = row.color(index);
      if (!color) continue;
      const from = Math.round(u.valToPos(times[index], "x", true));
      const step = times[Math.min(index + 1, times.length - 1)] - times[Math.max(index, 1) - 1];
      const to = Math.round(u.valToPos(times[index + 1] ?? times[index] + step, "x", true));
      u.ctx.fillStyle = color;
      u.ctx.fillRect(from, y, to - from - gap, Math.round(high * rowHeight) - gap);
    }
  });
  u.ctx.restore();
}

function Cells({ grid, legend, props }: { grid: Grid; legend: VizLegendItem[]; props: PanelProps }) {
  const theme = useTheme2();
  const { timeRange, timeZone, width, height } = props;
  const config = useMemo(() => {
    const builder = new UPlotConfigBuilder(timeZone);
    builder.addScale({ scaleKey: "x", isTime: true, orientation: ScaleOrientation.Horizontal, direction: ScaleDirection.Right, range: () => [timeRange.from.valueOf(), timeRange.to.valueOf()] });
    builder.addScale({ scaleKey: "y", isTime: false, orientation: ScaleOrientation.Vertical, direction: ScaleDirection.Up, range: () => [0, grid.rows.length] });
    builder.addAxis({ scaleKey: "x", isTime: true, placement: AxisPlacement.Bottom, timeZone, theme, grid: { show: false } });
    const labels = grid.rows.map((_, row) => row).filter(grid.isLabelled);
    builder.addAxis({
      scaleKey: "y", theme, placement: AxisPlacement.Left, grid: { show: false }, ticks: { show: false },
      splits: labels.map((row) => grid.rows.length - row - 0.5),
      values: (_: uPlot, splits: number[]) => splits.map((at) => grid.label(grid.rows.length - at - 0.5)),
    });
    builder.addSeries({ scaleKey: "y", theme, pathBuilder: () => null, lineColor: "transparent", show: true } as never);
    builder.addHook("draw", (u) => cells(u, grid));
    return builder;
  }, [grid, theme, timeZone, timeRange]);
  const names = legend.length ? (
    <VizLayout.Legend placement="bottom">
      <VizLegend items={legend} placement="bottom" displayMode={LegendDisplayMode.List} />
    </VizLayout.Legend>
  ) : undefined;
  return (
    <VizLayout width={width} height={height} legend={names as ReactElement<never>}>
      {(plotWidth: number, plotHeight: number) => (
        <UPlotChart config={config} data={[grid.times, grid.times.map(() => null)] as never} width={plotWidth} height={plotHeight} />
      )}
    </VizLayout>
  );
}

function numbers(frames: DataFrame[]): { times: number[]; fields: Field[] } {
  const series = frames.map((frame) => ({ time: frame.fields.find((field) => field.type === FieldType.time)!, fields: frame.fields.filter((field) => field.type === FieldType.number) }));
  const times = [...new Set(series.flatMap(({ time }) => time.values as number[]))].sort((a, b) => a - b);
  const fields = series.flatMap(({ time, fields }) => {
    const at = new Map((time.values as number[]).map((value, index) => [value, index]));
    return fields.map((field) => ({ ...field, values: times.map((value) => field.values[at.get(value) ?? -1] ?? null) }));
  });
  return { times, fields };
}

export function StateTimeline(props: PanelProps) {
  const theme = useTheme2();
  const { data, options, fieldConfig } = props;
  const grid = useMemo((): Grid => {
    const { times, fields } = numbers(data.series);
    const rows = fields.map((field, at) => ({
      name: getFieldDisplayName(field, data.series[at], data.series),
      color: (index: number) => (field.values[index] === null ? undefined : field.display!(field.values[index]).color),
    }));
    return { times, rows, gap: 0, rowHeight: options.rowHeight, label: (row) => rows[row].name, isLabelled: () => true };
  }, [data, options]);
  const colored = fieldConfig.defaults.mappings?.length
    ? fieldConfig.defaults.mappings.map(({ options }) => (options as { result: { text: string; color: string } }).result)
    : (fieldConfig.defaults.thresholds?.steps ?? []).map(({ value, color }, at, steps) => {
        const written = (number: number) => { const { text, suffix = "" } = data.series[0].fields[1].display!(number); return text + suffix; };
        const next = steps[at + 1]?.value;
        return { color, text: Number.isFinite(value) && value !== null ? `${written(value)}+` : `< ${written(next)}` };
      });
  const legend = colored.map(({ text, color }) => ({ label: text, color: theme.visualization.getColorByName(color), yAxis: 1 }));
  return <Cells grid={grid} legend={options.legend.showLegend ? legend : []} props={props} />;
}

export function HeatMap(props: PanelProps) {
  const theme = useTheme2();
  const { data, options } = props;
  const grid = useMemo((): Grid => {
    const { times, fields } = numbers(data.series);
    const shown = fields.filter((field) => field.values.some((value) => value > 0));
    // All buckets between the smallest and the largest one that is in use.
    const rows = shown.length ? fields.slice(fields.indexOf(shown[0]), fields.indexOf(shown[shown.length - 1]) + 1).reverse() : [];
    const most = Math.max(...rows.flatMap((field) => field.values as number[]));
    const steps = options.color.steps - 1;
    const shade = (value: number) => {
      const part = Math.round((value / most) ** options.color.exponent * steps) / steps;
      return interpolateOranges(theme.isDark ? 1 - part : part);
    };
    const every = Math.ceil(rows.length / 8);
    return {
      times, gap: options.cellGap, rowHeight: 1,
      rows: rows.map((field) => ({ name: field.name, color: (index) => (field.values[index] > options.filterValues.le ? shade(field.values[index]) : undefined) })),
      label: (row) => formattedValueToString(getValueFormat(options.yAxis.unit)(Number(rows[row].labels!.le))),
      isLabelled: (row) => (rows.length - 1 - row) % every === 0,
    };
  }, [data, options, theme]);
  return <Cells grid={grid} legend={[]} props={props} />;
}
