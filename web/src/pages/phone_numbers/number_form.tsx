/** The form of a phone number: both kinds of trunk, each field with its meaning. */

import type { ComponentChildren } from "preact";

import { write } from "../../api/client";
import { useSaving } from "../../api/saving";
import { type Draft, useDraft } from "../../app/draft";
import { useUnsavedChanges } from "../../app/leave_guard";
import { hasRole } from "../../app/session";
import { CheckboxField, NumberField, SelectField, TextAreaField, TextField } from "../../components/fields";
import { notify } from "../../components/notices";
import { t } from "../../texts";
import { bodyOf, NEW_NUMBER, type NumberValues, valuesOf } from "./number_values";
import type { Agent, PhoneNumber } from "./phone_numbers";

const texts = t.phoneNumbers;

interface Props {
  /** `null`: a new one. */
  number: PhoneNumber | null;
  agents: readonly Agent[];
  onSaved: (saved: PhoneNumber) => void;
}

export function NumberForm({ number, agents, onSaved }: Props) {
  const stored = number === null ? NEW_NUMBER : valuesOf(number);
  const draft = useDraft(stored);
  const { busy, problem, fields, run } = useSaving();
  const disabled = !hasRole("owner");
  useUnsavedChanges(draft.dirty);

  async function save(event: Event) {
    event.preventDefault();
    let saved: PhoneNumber | undefined;
    const body = bodyOf(draft.values.value, number === null ? null : stored);
    await run(async () => {
      saved =
        number === null
          ? await write<PhoneNumber>("POST", "/v1/phone-numbers", { provider: "sip", ...body })
          : await write<PhoneNumber>("PATCH", `/v1/phone-numbers/${number.id}`, body);
    });
    if (saved === undefined) return;
    const done = saved;
    draft.values.value = stored;
    notify(t.actions.saved);
    setTimeout(() => onSaved(done), 0); // when nothing is unsaved any more
  }

  const form = { draft, fields: fields.value, disabled };
  return (
    <form onSubmit={(event) => void save(event)}>
      <Section title={texts.section.number}>
        <Text form={form} name="number" label={texts.number} help={texts.numberHelp} required />
        <Text form={form} name="name" label={texts.name} help={texts.nameHelp} />
        <Choice
          form={form}
          name="agentId"
          label={texts.agent}
          help={texts.agentHelp}
          options={[["", texts.noAgent], ...agents.map((agent) => [agent.id, agent.name] as const)]}
        />
      </Section>
      <Section title={texts.section.trunk}>
        <div class="wide">
          <Choice form={form} name="sipMode" label={texts.mode} help={texts.modeHelp} options={modes(stored)} />
        </div>
        {draft.values.value.sipMode === "ip_allowlist" && <ByAddress form={form} />}
        {draft.values.value.sipMode === "registration" && <ByRegistration form={form} />}
        {draft.values.value.sipMode !== "" && (
          <div class="wide">
            <Lines form={form} name="sipSources" label={texts.sources} help={texts.sourcesHelp} />
            <Check form={form} name="sipAllowRedirect" label={texts.redirect} />
            <Check form={form} name="sipAllowRefer" label={texts.refer} />
          </div>
        )}
      </Section>
      <Section title={texts.section.calls}>
        <Lines form={form} name="outboundPrefixes" label={texts.prefixes} help={texts.prefixesHelp} />
        <Figure form={form} name="outboundPerMinute" label={texts.perMinute} help={texts.perMinuteHelp} most={6000} />
        <Choice
          form={form}
          name="sipTransferMethod"
          label={texts.transferMethod}
          help={texts.transferMethodHelp}
          options={Object.entries(texts.transferMethods)}
        />
        <Choice
          form={form}
          name="sipTransferCallerId"
          label={texts.callerId}
          help={texts.callerIdHelp}
          options={Object.entries(texts.callerIds)}
        />
      </Section>
      <p class="problem" role="alert">
        {problem}
      </p>
      <div class="actions">
        <button type="submit" class="primary" disabled={disabled || busy.value || !draft.dirty}>
          {t.actions.save}
        </button>
      </div>
    </form>
  );
}

interface FormState {
  draft: Draft<NumberValues>;
  fields: Readonly<Record<string, string>>;
  disabled: boolean;
}

function ByAddress({ form }: { form: FormState }) {
  const authenticates = form.draft.values.value.sipInboundAuth;
  return (
    <>
      <Text form={form} name="sipIp" label={texts.sipIp} help={texts.sipIpHelp} required />
      <Figure form={form} name="sipPort" label={texts.sipPort} help={texts.sipPortHelp} most={65535} />
      <Choice
        form={form}
        name="sipProtocol"
        label={texts.transport}
        help={texts.transportHelp}
        options={Object.entries(texts.transports)}
      />
      <Figure
        form={form}
        name="sipQualifySeconds"
        label={texts.qualify}
        help={texts.qualifyHelp}
        least={0}
        most={3600}
      />
      <div class="wide">
        <Check form={form} name="sipInboundAuth" label={texts.inboundAuth} help={texts.inboundAuthHelp} />
      </div>
      {authenticates && <Credentials form={form} />}
    </>
  );
}

function ByRegistration({ form }: { form: FormState }) {
  return (
    <>
      <Text form={form} name="sipProxy" label={texts.sipProxy} help={texts.sipProxyHelp} required />
      <Choice
        form={form}
        name="sipRegisterTransport"
        label={texts.transport}
        help={texts.transportHelp}
        options={Object.entries(texts.transports)}
      />
      <Credentials form={form} />
      <Text form={form} name="sipAuthUser" label={texts.authUser} help={texts.authUserHelp} />
      <Text form={form} name="sipOutboundProxy" label={texts.outboundProxy} help={texts.outboundProxyHelp} />
    </>
  );
}

function Credentials({ form }: { form: FormState }) {
  const { draft, fields, disabled } = form;
  return (
    <>
      <Text form={form} name="sipUsername" label={texts.username} help={texts.usernameHelp} required />
      <TextField
        label={texts.password}
        help={texts.passwordHelp}
        problem={fields.sipPassword}
        type="password"
        autocomplete="new-password"
        {...{ disabled, value: draft.values.value.sipPassword }}
        onInput={(value) => draft.set("sipPassword", value)}
      />
    </>
  );
}

function Section({ title, children }: { title: string; children: ComponentChildren }) {
  return (
    <fieldset>
      <legend>{title}</legend>
      <div class="columns">{children}</div>
    </fieldset>
  );
}

/** The names of values of a kind. */
type NamesOf<Kind> = {
  [Name in keyof NumberValues]: NumberValues[Name] extends Kind ? Name : never;
}[keyof NumberValues];

interface ControlProps<Kind> {
  form: FormState;
  name: NamesOf<Kind>;
  label: string;
  help?: string;
}

function common({ form, name, label, help = "" }: Omit<ControlProps<never>, "name"> & { name: string }) {
  return { label, help, problem: problemOf(form.fields, name), disabled: form.disabled };
}

function Text({ required = false, ...props }: ControlProps<string> & { required?: boolean }) {
  const { draft } = props.form;
  return (
    <TextField
      {...common(props)}
      required={required}
      value={draft.values.value[props.name]}
      onInput={(value) => draft.set(props.name, value)}
    />
  );
}

function Lines(props: ControlProps<string>) {
  const { draft } = props.form;
  return (
    <TextAreaField
      {...common(props)}
      rows={3}
      value={draft.values.value[props.name]}
      onInput={(value) => draft.set(props.name, value)}
    />
  );
}

function Choice({ options, ...props }: ControlProps<string> & { options: readonly (readonly [string, string])[] }) {
  const { draft } = props.form;
  return (
    <SelectField
      {...common(props)}
      options={options}
      value={draft.values.value[props.name]}
      onInput={(value) => draft.set(props.name, value)}
    />
  );
}

function Figure({ least = 1, most, ...props }: ControlProps<number | null> & { least?: number; most: number }) {
  const { draft } = props.form;
  return (
    <NumberField
      {...common(props)}
      min={least}
      max={most}
      value={draft.values.value[props.name] as number | null}
      onInput={(value) => draft.set(props.name, value)}
    />
  );
}

function Check(props: ControlProps<boolean>) {
  const { draft } = props.form;
  return (
    <CheckboxField
      {...common(props)}
      value={draft.values.value[props.name]}
      onInput={(value) => draft.set(props.name, value)}
    />
  );
}

/** A trunk cannot be taken from a number that has one. */
function modes(stored: NumberValues): (readonly [string, string])[] {
  const { none, ip_allowlist, registration } = texts.modes;
  const kinds = [["ip_allowlist", ip_allowlist] as const, ["registration", registration] as const];
  return stored.sipMode === "" ? [["", none], ...kinds] : kinds;
}

function problemOf(fields: Readonly<Record<string, string>>, name: string): string | undefined {
  const found = Object.keys(fields).find((each) => each === name || each.startsWith(`${name}.`));
  return found === undefined ? undefined : fields[found];
}
