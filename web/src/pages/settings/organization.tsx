/** The organization: what the operator has set, and its usage. */

import { get, type Schemas } from "../../api/client";
import { useResource } from "../../api/resource";
import { LoadedView } from "../../components/loaded_view";
import { Table } from "../../components/table";
import { t } from "../../texts";
import { byteSize } from "../../texts/format";
import { Fact } from "../calls/call_facts";
import { RetentionForm } from "./retention_form";

export type Organization = Schemas["Organization"];

const texts = t.settings.organization;

/** Loads it again whenever it is shown: the usage changes. */
export function OrganizationSettings({ shown }: { shown: boolean }) {
  const organization = useResource((signal) => get<Organization>("/v1/organization", {}, signal), [], [shown]);
  return (
    <LoadedView resource={organization}>
      {(value) => (
        <>
          <Limits organization={value} />
          <RetentionForm organization={value} onSaved={organization.reload} />
          <Quotas quotas={value.quotas} />
        </>
      )}
    </LoadedView>
  );
}

function Limits({ organization }: { organization: Organization }) {
  const { outboundPrefixes: prefixes } = organization;
  return (
    <section class="panel">
      <h2>{texts.limits}</h2>
      <p class="quiet">{texts.limitsHelp}</p>
      <dl class="facts">
        <Fact name={texts.name}>{organization.name}</Fact>
        <Fact name={texts.plan}>{texts.plans[organization.plan]}</Fact>
        {organization.balance !== null && <Fact name={texts.balance}>{organization.balance.toFixed(2)}</Fact>}
        <Fact name={texts.maxCalls}>{organization.maxCalls}</Fact>
        <Fact name={texts.perMinute}>{organization.outboundPerMinute ?? texts.serverPace}</Fact>
        <Fact name={texts.prefixes}>{prefixes === null ? texts.anywhere : prefixes.join(", ") || texts.nowhere}</Fact>
        <Fact name={texts.listening}>{organization.listening ? texts.allowed : texts.forbidden}</Fact>
      </dl>
    </section>
  );
}

function Quotas({ quotas }: { quotas: Organization["quotas"] }) {
  const { quota, used, allowed } = texts.columns;
  return (
    <section class="panel next">
      <h2>{texts.quotas}</h2>
      <p class="quiet">{texts.quotasHelp}</p>
      <Table label={texts.quotas} columns={[quota, used, allowed]}>
        {quotas.map((each) => {
          const figure = each.name.endsWith("_bytes") ? byteSize : String;
          return (
            <tr key={each.name}>
              <td>{texts.quota[each.name] ?? each.name}</td>
              <td class="figure">{figure(each.used)}</td>
              <td class="figure">{figure(each.allowed)}</td>
            </tr>
          );
        })}
      </Table>
    </section>
  );
}
