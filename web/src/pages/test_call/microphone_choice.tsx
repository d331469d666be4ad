/** Which microphone is used, and what is wrong with it. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";

import { SelectField } from "../../components/fields";
import { t } from "../../texts";
import type { BrowserPhone } from "./browser_phone";
import { type Microphone, microphones } from "./microphone";

export function MicrophoneChoice({ phone }: { phone: BrowserPhone }) {
  const found = useSignal<readonly Microphone[]>([]);
  useEffect(() => {
    const devices = navigator.mediaDevices;
    const look = () => {
      void microphones().then((list) => {
        found.value = list;
      });
    };
    look();
    devices?.addEventListener("devicechange", look);
    return () => devices?.removeEventListener("devicechange", look);
  }, [phone.isOpen.value]);
  const options = [
    ["", t.testCall.defaultMicrophone] as const,
    ...found.value.map(({ id, name }, index) => [id, name || t.testCall.unnamedMicrophone(index + 1)] as const),
  ];
  return (
    <SelectField
      label={t.testCall.microphone}
      value={phone.microphone.value}
      onInput={(id) => void phone.chooseMicrophone(id)}
      options={options}
    />
  );
}

export function MicrophoneNotice({ phone }: { phone: BrowserPhone }) {
  const problem = phone.microphoneProblem.value;
  if (problem === null) return null;
  return (
    <>
      <p class="notice notice-error" role="alert">
        {t.testCall.microphoneProblems[problem]}
      </p>
      {problem === "insecure" && <HttpsSteps />}
    </>
  );
}

/** How this device gets HTTPS by the server's own certificate authority. */
function HttpsSteps() {
  const { title, server, authority, download, devices, open } = t.testCall.https;
  return (
    <details>
      <summary>{title}</summary>
      <ol>
        <li>{server}</li>
        <li>
          {authority}{" "}
          <a href="/ca.crt" download>
            {download}
          </a>
          <ul>
            {devices.map(([device, steps]) => (
              <li key={device}>
                <strong>{device}</strong>: {steps}
              </li>
            ))}
          </ul>
        </li>
        <li>{open(location.hostname)}</li>
      </ol>
    </details>
  );
}
