/** An agent as its form has it: the stored values, the changes, and what the server says is wrong with them. */

import { computed, type ReadonlySignal, type Signal, signal } from "@preact/signals";

import type { Schemas } from "../../../api/client";

export type Agent = Schemas["Agent"];
type Added = "id" | "createdAt" | "updatedAt" | "version" | "warnings" | "postCallWebhookSecretSet";

/** The fields that a form changes. A text that is not set is empty here. */
export type Values = Omit<Agent, Added>;
export type FieldName = keyof Values | "postCallWebhookSecret";

/** The webhook's secret is never read: it stays, is replaced, or goes. */
export type SecretChange = { action: "keep" } | { action: "replace"; value: string } | { action: "remove" };

/** Names of the fields whose value has a type. */
export type FieldsOf<T> = { [K in keyof Values]-?: Values[K] extends T ? K : never }[keyof Values];
export type TextName = FieldsOf<string | null>;
export type FlagName = FieldsOf<boolean>;
export type NumberName = FieldsOf<number | null>;

const ADDED: readonly string[] = ["id", "createdAt", "updatedAt", "version", "warnings", "postCallWebhookSecretSet"];

export class Draft {
  readonly stored: Signal<Agent>;
  readonly values: Signal<Values>;
  readonly secret = signal<SecretChange>({ action: "keep" });
  /** Values of variables in previews of texts. */
  readonly samples = signal<Readonly<Record<string, string>>>({});
  readonly changed: ReadonlySignal<readonly FieldName[]> = computed(() => this.changes());

  constructor(
    agent: Agent,
    readonly readOnly: boolean,
    /** What the server says is wrong, by the path of the field. */
    readonly problems: Signal<Readonly<Record<string, string>>>,
  ) {
    this.stored = signal(agent);
    this.values = signal(valuesOf(agent));
  }

  set<Name extends keyof Values>(name: Name, value: Values[Name]): void {
    this.values.value = { ...this.values.value, [name]: value };
  }

  /** Continue from what the server has stored. */
  accept(agent: Agent): void {
    this.stored.value = agent;
    this.discard();
  }

  discard(): void {
    this.values.value = valuesOf(this.stored.value);
    this.secret.value = { action: "keep" };
    this.problems.value = {};
  }

  /** The body of a PATCH: the changed fields alone. */
  body(): Record<string, unknown> {
    const { value } = this.values;
    const secret = this.secret.value;
    return Object.fromEntries(
      this.changed.value.map((name) =>
        name === "postCallWebhookSecret"
          ? [name, secret.action === "replace" ? secret.value : null]
          : [name, sent(name, value[name])],
      ),
    );
  }

  problem(path: string): string | undefined {
    return this.problems.value[path];
  }

  /** What is wrong with a list or with any item of it. */
  problemBelow(name: string): string | undefined {
    const found = Object.entries(this.problems.value).find(([path]) => path === name || path.startsWith(`${name}.`));
    return found?.[1];
  }

  private changes(): FieldName[] {
    const before: Record<string, unknown> = valuesOf(this.stored.value);
    const now: Record<string, unknown> = this.values.value;
    const names = Object.keys(now).filter((name) => JSON.stringify(now[name]) !== JSON.stringify(before[name]));
    return [...names, ...(this.secret.value.action === "keep" ? [] : ["postCallWebhookSecret"])] as FieldName[];
  }
}

/** The agent's fields with which a new agent is made like it. */
export function bodyOf(agent: Agent): Record<string, unknown> {
  const { systemPrompt, ...values } = valuesOf(agent);
  const entries = Object.entries(values).map(([name, value]) => [name, sent(name as keyof Values, value)]);
  return { ...Object.fromEntries(entries), systemPrompt };
}

const EMPTY_IS_NULL: readonly (keyof Values)[] = [
  "agentGreeting",
  "recordingAnnouncement",
  "languageHint",
  "knowledgeSearchInstructions",
  "holdMessage",
  "holdMusicUrl",
  "voicemailMessage",
  "postCallWebhookUrl",
];

function valuesOf(agent: Agent): Values {
  const values = Object.fromEntries(Object.entries(agent).filter(([name]) => !ADDED.includes(name)));
  for (const name of [...EMPTY_IS_NULL, "systemPrompt"]) values[name] ??= "";
  return values as Values;
}

function sent(name: keyof Values, value: unknown): unknown {
  return value === "" && EMPTY_IS_NULL.includes(name) ? null : value;
}
