/** Calls by direction in each hour or day. The table below the chart has the same figures for screen readers. */

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";

import type { Schemas } from "../../api/client";
import { isDark } from "../../app/theme";
import { t } from "../../texts";
import { dayOf, timeOf } from "../../texts/format";

const HEIGHT = 240;
/** Between two marks of the axis of time, s. */
/** Distances of the marks: whole calls. */
const COUNTS = [1, 2, 5].flatMap((each) => [0, 1, 2, 3, 4, 5].map((power) => each * 10 ** power)).sort((a, b) => a - b);
const DAYS = [1, 2, 7, 14].map((days) => days * 86_400);
const HOURS = [1, 2, 3, 6, 12].map((hours) => hours * 3600);

interface Props {
  periods: readonly Schemas["StatisticsPeriod"][];
  interval: Schemas["Statistics"]["interval"];
}

export function PeriodChart({ periods, interval }: Props) {
  const place = useRef<HTMLDivElement>(null);
  const dark = isDark.value;
  useEffect(() => {
    const element = place.current;
    if (!element) return;
    const colours = getComputedStyle(element);
    const colour = (name: string) => colours.getPropertyValue(name).trim();
    const lines = { stroke: colour("--line"), width: 1 };
    const axis: uPlot.Axis = { stroke: colour("--quiet"), grid: lines, ticks: lines };
    const mark = interval === "day" ? dayOf : timeOf;
    const time: uPlot.Axis = {
      ...axis,
      grid: { show: false },
      incrs: interval === "day" ? DAYS : HOURS,
      values: (_chart, seconds) => seconds.map((each) => mark(each * 1000)),
    };
    const line = (label: string, stroke: string) => ({ label, stroke, width: 2, points: { show: true, size: 5 } });
    const options: uPlot.Options = {
      width: element.clientWidth,
      height: HEIGHT,
      legend: { live: false },
      cursor: { show: false },
      scales: { y: { range: (_chart, _least, most) => [0, Math.max(most * 1.1, 1)] } },
      axes: [time, { ...axis, incrs: COUNTS }],
      series: [
        {},
        line(t.overview.figures.inbound, colour("--accent")),
        line(t.overview.figures.outbound, colour("--live")),
        line(t.overview.figures.failed, colour("--bad")),
      ],
    };
    const columns: uPlot.AlignedData = [
      periods.map((each) => Date.parse(each.start) / 1000),
      periods.map((each) => each.inbound),
      periods.map((each) => each.outbound),
      periods.map((each) => each.failed),
    ];
    const chart = new uPlot(options, columns, element);
    const watcher = new ResizeObserver(() => chart.setSize({ width: element.clientWidth, height: HEIGHT }));
    watcher.observe(element);
    return () => {
      watcher.disconnect();
      chart.destroy();
    };
  }, [periods, interval, dark]);
  return <div ref={place} class="chart" aria-hidden="true" />;
}
