/** The quality of the audio in both directions. */

import type { Schemas } from "../../api/client";
import { t } from "../../texts";
import { figure } from "../../texts/format";

type Quality = NonNullable<Schemas["Call"]["mediaQuality"]>;

export function MediaQualityTable({ quality }: { quality: Schemas["Call"]["mediaQuality"] }) {
  const { media } = t.call;
  if (!quality) return <p class="notice">{media.none}</p>;
  return (
    <>
      <div class="scroll">
        <table>
          <thead>
            <tr>
              <th scope="col">{quality.codec}</th>
              <th scope="col">{media.received}</th>
              <th scope="col">{media.sent}</th>
            </tr>
          </thead>
          <tbody>
            {rows(quality).map(([name, received, sent]) => (
              <tr key={name}>
                <th scope="row">{name}</th>
                <td class="figure">{shown(received)}</td>
                <td class="figure">{shown(sent)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p class="quiet">
        {quality.roundTripMs === null
          ? media.noRoundTrip
          : media.roundTrip(Math.round(quality.roundTripMs), Math.round(quality.maxRoundTripMs ?? quality.roundTripMs))}
      </p>
    </>
  );
}

type Figure = number | null | undefined;

function rows({ received, sent }: Quality): [string, Figure, Figure][] {
  const { rows: names } = t.call.media;
  return [
    [names.packets, received.packets, sent.packets],
    [names.lost, received.lost, sent.lost],
    [names.lossPercent, received.lossPercent, sent.lossPercent],
    [names.jitterMs, received.jitterMs, sent.jitterMs],
    [names.maxJitterMs, received.maxJitterMs, sent.maxJitterMs],
    [names.mos, received.mos, sent.mos],
    [names.duplicate, received.duplicate, null],
    [names.reordered, received.reordered, null],
    [names.foreign, received.foreign, null],
    [names.malformed, received.malformed, null],
    [names.discardedMs, received.discardedMs, null],
  ];
}

function shown(value: Figure): string {
  return typeof value === "number" ? figure(value) : "";
}
