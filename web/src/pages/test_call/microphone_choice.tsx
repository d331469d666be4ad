/** Which microphone is used, and what is wrong with it. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";

import { SelectField } from "../../components/fields";
import { t } from "../../texts";
import { type Microphone, microphones } from "./microphone";
import type { TestCall } from "./test_call";

export function MicrophoneChoice({ call }: { call: TestCall }) {
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
  }, [call.phase.value]);
  const options = [
    ["", t.testCall.defaultMicrophone] as const,
    ...found.value.map(({ id, name }, index) => [id, name || t.testCall.unnamedMicrophone(index + 1)] as const),
  ];
  return (
    <SelectField
      label={t.testCall.microphone}
      value={call.microphone.value}
      onInput={(id) => void call.chooseMicrophone(id)}
      options={options}
    />
  );
}

export function MicrophoneNotice({ call }: { call: TestCall }) {
  const problem = call.microphoneProblem.value;
  if (problem === null) return null;
  return (
    <p class="notice notice-error" role="alert">
      {t.testCall.microphoneProblems[problem]}
    </p>
  );
}
