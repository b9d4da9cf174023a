// The panels, by the names that a dashboard has for them. In Grafana, each kind of panel is a
// plugin, and the plugins are in no package; but what they draw with is. Each function here passes
// the panel's options to the component that Grafana's plugin of that name draws with.

import {
  FieldConfigProperty, FieldColorModeId, cacheFieldDisplayNames, FieldType, PanelPlugin, identityOverrideProcessor, dataLinksOverrideProcessor, displayNameOverrideProcessor, numberOverrideProcessor,
  stringOverrideProcessor, thresholdsOverrideProcessor, unitOverrideProcessor, valueMappingsOverrideProcessor, standardFieldConfigEditorRegistry, standardTransformers,
  standardTransformersRegistry, getFieldDisplayValues, type FieldConfigPropertyItem, type FieldDisplay, type PanelProps,
} from "@grafana/data";
import { setPluginImportUtils } from "@grafana/runtime";
import { BigValue, TimeSeries, VizRepeater, useTheme2 } from "@grafana/ui";
import { TableNG } from "@grafana/ui/unstable";
import type { ComponentType } from "react";
import { HeatMap, StateTimeline } from "./plots";

function TimeSeriesPanel({ data, options, width, height, timeRange, timeZone }: PanelProps) {
  return (
    <TimeSeries frames={data.series} structureRev={data.structureRev} timeRange={timeRange} timeZone={timeZone} width={width} height={height} legend={options.legend} options={options} />
  );
}

function StatPanel({ data, options, fieldConfig, width, height, timeZone, replaceVariables }: PanelProps) {
  const theme = useTheme2();
  const values = () =>
    getFieldDisplayValues({ fieldConfig, reduceOptions: options.reduceOptions, replaceVariables, theme, data: data.series, sparkline: options.graphMode !== "none", timeZone });
  return (
    <VizRepeater
      getValues={values} source={data} width={width} height={height} renderCounter={0} itemSpacing={3} orientation={options.orientation}
      renderValue={({ value, width, height, count }: { value: FieldDisplay; width: number; height: number; count: number }) => (
        <BigValue
          value={value.display} sparkline={value.sparkline} count={count} width={width} height={height} theme={theme} colorMode={options.colorMode} graphMode={options.graphMode}
          justifyMode={options.justifyMode} textMode={options.textMode}
        />
      )}
    />
  );
}

function TablePanel({ data, options, width, height, timeRange, fieldConfig }: PanelProps) {
  // The table takes the names of its columns from there.
  cacheFieldDisplayNames(data.series);
  return (
    <TableNG
      data={data.series[options.frameIndex]} width={width} height={height} noHeader={!options.showHeader} sortBy={options.sortBy} cellHeight={options.cellHeight} timeRange={timeRange}
      fieldConfig={fieldConfig} structureRev={data.structureRev}
    />
  );
}

// Grafana shows "No data" if a panel has none.
function orNoData(Panel: ComponentType<PanelProps>): ComponentType<PanelProps> {
  return (props) =>
    props.data.series.some((frame) => frame.length > 0 && frame.fields.some((field) => field.type !== FieldType.time)) ? (
      <Panel {...props} />
    ) : (
      <div className="no-data">No data</div>
    );
}

// The settings of a field that each kind of panel has, with Grafana's defaults.
const CUSTOM: Record<string, Record<string, unknown>> = {
  timeseries: {
    drawStyle: "line", lineInterpolation: "linear", lineWidth: 1, fillOpacity: 0, gradientMode: "none", showPoints: "auto", pointSize: 5, spanNulls: false, barAlignment: 0,
    stacking: { mode: "none", group: "A" }, axisPlacement: "auto", axisLabel: "", axisColorMode: "text", axisBorderShow: false, axisCenteredZero: false,
    scaleDistribution: { type: "linear" }, hideFrom: { legend: false, tooltip: false, viz: false }, thresholdsStyle: { mode: "off" },
  },
  stat: {},
  table: { align: "auto", cellOptions: { type: "auto" }, inspect: false },
  "state-timeline": { lineWidth: 0, fillOpacity: 70 },
  heatmap: { scaleDistribution: { type: "linear" } },
};
const PANELS: Record<string, ComponentType<PanelProps>> = { timeseries: TimeSeriesPanel, stat: StatPanel, table: TablePanel, "state-timeline": StateTimeline, heatmap: HeatMap };
const COLORS: Record<string, string> = { timeseries: FieldColorModeId.PaletteClassic, "state-timeline": FieldColorModeId.ContinuousGrYlRd };

// The settings that fields of all panels have. How each is read is in Grafana's package, the list
// of them is not.
const STANDARD: Record<string, FieldConfigPropertyItem["process"]> = {
  [FieldConfigProperty.Unit]: unitOverrideProcessor, [FieldConfigProperty.Min]: numberOverrideProcessor, [FieldConfigProperty.Max]: numberOverrideProcessor,
  [FieldConfigProperty.FieldMinMax]: identityOverrideProcessor, [FieldConfigProperty.Decimals]: numberOverrideProcessor,
  [FieldConfigProperty.DisplayName]: displayNameOverrideProcessor, [FieldConfigProperty.NoValue]: stringOverrideProcessor,
  [FieldConfigProperty.Thresholds]: thresholdsOverrideProcessor as FieldConfigPropertyItem["process"],
  [FieldConfigProperty.Mappings]: valueMappingsOverrideProcessor as FieldConfigPropertyItem["process"],
  [FieldConfigProperty.Links]: dataLinksOverrideProcessor as FieldConfigPropertyItem["process"],
  [FieldConfigProperty.Color]: identityOverrideProcessor, [FieldConfigProperty.Filterable]: identityOverrideProcessor,
};

// Settings are only read here, so nothing edits them.
const editor = () => null;

/** Registers the panels and the transformations, as Grafana does when it starts. */
export function register() {
  standardFieldConfigEditorRegistry.setInit(() =>
    Object.entries(STANDARD).map(([id, process]) => ({ id, path: id, name: id, editor, override: editor, process, shouldApply: () => true, settings: {} }) as unknown as FieldConfigPropertyItem));
  // Some transformations have two names in the list.
  standardTransformersRegistry.setInit(() =>
    [...new Map(Object.values(standardTransformers).map((one) => [one.id, one])).values()].map((one) =>
      ({ id: one.id, name: one.name, transformation: async () => one, editor, imageDark: "", imageLight: "" }) as never));
  const plugins = new Map(Object.entries(PANELS).map(([id, Panel]) => {
    const plugin = new PanelPlugin(orNoData(Panel)).useFieldConfig({
      standardOptions: { [FieldConfigProperty.Color]: { defaultValue: { mode: COLORS[id] ?? FieldColorModeId.Thresholds }, settings: {} } },
      useCustomConfig: (builder) => {
        for (const [path, defaultValue] of Object.entries(CUSTOM[id])) {
          builder.addCustomEditor({ id: path, path, name: path, editor, override: editor, process: identityOverrideProcessor, shouldApply: () => true, defaultValue });
        }
      },
    });
    plugin.meta = { id, name: id, info: { version: "" } } as PanelPlugin["meta"];
    return [id, plugin];
  }));
  setPluginImportUtils({ importPanelPlugin: async (id) => plugins.get(id)!, getPanelPluginFromCache: (id) => plugins.get(id) });
}

/** The kinds of panel that can be drawn. */
export const KINDS = Object.keys(PANELS);
