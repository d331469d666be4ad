/** The summary and extracted values of a call, its transfers, and what clients gave with it. */

import type { Schemas } from "../../api/client";
import { t } from "../../texts";
import { duration } from "../../texts/format";
import { Fact } from "./call_facts";
import { RedactedText } from "./transcript/redacted_text";

type Call = Schemas["Call"];

export function CallSummary({ call }: { call: Call }) {
  const { analysis } = call;
  const { analysis: texts } = t.call;
  return (
    <>
      {analysis ? (
        <div class="panel">
          {analysis.summary !== null && (
            <p>
              <RedactedText text={analysis.summary} />
            </p>
          )}
          <Values values={analysis.extractions} />
          {analysis.method && <p class="quiet">{texts.method[analysis.method]}</p>}
          {analysis.error && <p class="problem">{texts.error(analysis.error)}</p>}
        </div>
      ) : (
        <p class="notice">{texts.none}</p>
      )}
      <ValuesPanel title={texts.contextVariables} values={call.contextVariables} />
      <ValuesPanel title={texts.metadata} values={call.metadata} />
      {call.usage && <ValuesPanel title={texts.usage} values={call.usage} />}
    </>
  );
}

export function Transfers({ transfers }: { transfers: Call["transferCalls"] }) {
  return (
    <ol class="transfers">
      {transfers?.map((transfer) => (
        <li key={transfer.id} class="panel">
          <h2>{t.call.transfers.to(transfer.targetName)}</h2>
          <dl class="facts">
            <Fact name={t.call.facts.status}>{t.call.transferStatus[transfer.transferStatus]}</Fact>
            <Fact name={t.call.transfers.mode}>{t.call.transfers.modes[transfer.transferType]}</Fact>
            <Fact name={t.call.transfers.number}>{transfer.customerNumber}</Fact>
            {transfer.durationSeconds !== null && (
              <Fact name={t.call.facts.duration}>{duration(transfer.durationSeconds)}</Fact>
            )}
            {transfer.reason !== null && <Fact name={t.call.transfers.reason}>{transfer.reason}</Fact>}
            {transfer.summary !== null && <Fact name={t.call.transfers.briefing}>{transfer.summary}</Fact>}
            {transfer.declineReason !== null && <Fact name={t.call.transfers.declined}>{transfer.declineReason}</Fact>}
          </dl>
          <ul>
            {transfer.attempts.map((attempt) => (
              <li key={attempt.startedAt}>
                <bdi>{attempt.number}</bdi>: {outcomeOf(attempt)} {attempt.sipStatus}
              </li>
            ))}
          </ul>
          {transfer.status !== null && <a href={`/calls/${transfer.id}`}>{t.call.transfers.open}</a>}
        </li>
      ))}
    </ol>
  );
}

/** Most outcomes have the name of the status that the transfer got by them. */
function outcomeOf({ outcome }: Schemas["TransferAttempt"]): string {
  if (outcome === null) return "";
  const statuses: Readonly<Record<string, string>> = t.call.transferStatus;
  return t.call.transfers.outcomes[outcome] ?? statuses[outcome] ?? outcome;
}

function ValuesPanel({ title, values }: { title: string; values: Record<string, unknown> }) {
  if (Object.keys(values).length === 0) return null;
  return (
    <section class="panel">
      <h2>{title}</h2>
      <Values values={values} />
    </section>
  );
}

function Values({ values }: { values: Record<string, unknown> }) {
  return (
    <dl class="facts">
      {Object.entries(values).map(([name, value]) => (
        <Fact key={name} name={name}>
          <RedactedText text={typeof value === "string" ? value : JSON.stringify(value)} />
        </Fact>
      ))}
    </dl>
  );
}
