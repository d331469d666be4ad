/** The SIP messages of a call: a list with relative times, and the whole text of each. */

import { download, get, type Schemas } from "../../api/client";
import { useResource } from "../../api/resource";
import { useSaving } from "../../api/saving";
import { hasRole } from "../../app/session";
import { LoadedView } from "../../components/loaded_view";
import { t } from "../../texts";

export function SipMessages({ path }: { path: string }) {
  const view = useResource((signal) => get<Schemas["CallSipView"]>(`${path}/sip`, {}, signal), [path]);
  const { busy, problem, run } = useSaving();
  const id = path.slice(path.lastIndexOf("/") + 1);
  return (
    <LoadedView resource={view}>
      {({ messages, leftOut }) =>
        messages.length === 0 ? (
          <p class="notice">{t.call.sip.none}</p>
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
                  onClick={() => void run(() => download(`${path}/sip?format=pcap`, `call-${id}.pcap`))}
                >
                  {t.call.sip.pcap}
                </button>
              )}
            </div>
            <ol class="sip">
              {messages.map((message) => (
                <li key={`${message.at} ${message.summary}`} class={`sip-${message.direction}`}>
                  <details>
                    <summary>
                      <span class="figure">{(message.offsetMs / 1000).toFixed(3)} s</span>
                      <span aria-hidden="true">{message.direction === "sent" ? "→" : "←"}</span>
                      <span class="clip">{message.summary}</span>
                      <span class="quiet clip">
                        {message.from} → {message.to}
                      </span>
                    </summary>
                    <pre>{message.text ?? t.call.sip.operatorOnly}</pre>
                  </details>
                </li>
              ))}
            </ol>
            {leftOut > 0 && <p class="quiet">{t.call.sip.leftOut(leftOut)}</p>}
          </>
        )
      }
    </LoadedView>
  );
}
