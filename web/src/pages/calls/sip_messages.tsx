/** The SIP messages of a call as a ladder of two lanes, this server's and the peer's, with relative times and the whole
 * text of each. */

import { download, get, type Schemas } from "../../api/client";
import { useResource } from "../../api/resource";
import { useSaving } from "../../api/saving";
import { hasRole } from "../../app/session";
import { LoadedView } from "../../components/loaded_view";
import { t } from "../../texts";

type Call = Schemas["Call"];
type Message = Schemas["CallSipView"]["messages"][number];

/** They are loaded again whenever the call has changed. */
export function SipMessages({ call }: { call: Call }) {
  const path = `/v1/calls/${call.id}`;
  const view = useResource((signal) => get<Schemas["CallSipView"]>(`${path}/sip`, {}, signal), [path], [call]);
  const { busy, problem, run } = useSaving();
  const { sip } = t.call;
  return (
    <LoadedView resource={view}>
      {({ messages, leftOut }) =>
        messages.length === 0 ? (
          <p class="notice">{sip.none}</p>
        ) : (
          <>
            <div class="actions">
              <span class="problem" role="alert">
                {problem}
              </span>
              {hasRole("operator") && (
                <button
                  type="button"
                  disabled={busy.value}
                  onClick={() => void run(() => download(`${path}/sip?format=pcap`, `call-${call.id}.pcap`))}
                >
                  {sip.pcap}
                </button>
              )}
            </div>
            <div class="sip-lanes" aria-hidden="true">
              <span>{sip.lanes.server}</span>
              <span>{sip.lanes.peer}</span>
            </div>
            <ol class="sip" aria-label={sip.ladder}>
              {messages.map((message) => (
                <MessageRow key={`${message.at} ${message.summary}`} message={message} />
              ))}
            </ol>
            {leftOut > 0 && <p class="quiet">{sip.leftOut(leftOut)}</p>}
          </>
        )
      }
    </LoadedView>
  );
}

function MessageRow({ message }: { message: Message }) {
  const { sip } = t.call;
  return (
    <li class={`sip-${message.direction}`}>
      <details>
        <summary>
          <span class="figure">{(message.offsetMs / 1000).toFixed(3)} s</span>
          <span class="sip-arrow">
            <span class="clip">{message.summary}</span>
            <span class="hidden-text">, {sip.directions[message.direction]}</span>
          </span>
        </summary>
        <p class="quiet">
          <bdi>{message.from}</bdi> → <bdi>{message.to}</bdi>
        </p>
        <pre>{message.text ?? sip.operatorOnly}</pre>
      </details>
    </li>
  );
}
