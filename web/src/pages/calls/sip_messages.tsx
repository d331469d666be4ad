/** The SIP messages of a call: a list with relative times, and the whole text of each. */

import { get, type Schemas } from "../../api/client";
import { useResource } from "../../api/resource";
import { LoadedView } from "../../components/loaded_view";
import { t } from "../../texts";

export function SipMessages({ path }: { path: string }) {
  const view = useResource((signal) => get<Schemas["CallSipView"]>(`${path}/sip`, {}, signal), [path]);
  return (
    <LoadedView resource={view}>
      {({ messages, leftOut }) =>
        messages.length === 0 ? (
          <p class="notice">{t.call.sip.none}</p>
        ) : (
          <>
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
                    <pre>{message.text}</pre>
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
