/** Calls by direction in each hour or day. The table below the chart has the same figures for screen readers. */

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";

import type { Schemas } from "../../api/client";
import { t } from "../../texts";

const HEIGHT = 220;

export function PeriodChart({ periods }: { periods: readonly Schemas["StatisticsPeriod"][] }) {
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const element = place.current;
    if (!element) return;
    const colours = getComputedStyle(element);
    const colour = (name: string) => colours.getPropertyValue(name).trim();
    const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line") }, ticks: { stroke: colour("--line") } };
    const line = (label: string, stroke: string) => ({ label, stroke, width: 2, points: { show: true, size: 5 } });
    const options: uPlot.Options = {
      width: element.clientWidth,
      height: HEIGHT,
      legend: { live: false },
      cursor: { show: false },
      scales: { y: { range: (_chart, _least, most) => [0, Math.max(most * 1.1, 1)] } },
      axes: [axis, axis],
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
  }, [periods]);
  return <div ref={place} class="chart" aria-hidden="true" />;
}
