/** The phone numbers of the organization with the state of their trunks, and the one that the address names. */

import { useLocation } from "preact-iso";

import { everything, getPage, queryString, type Schemas } from "../../api/client";
import { eventsArrive, LIST_PATIENCE_MS, useEvents } from "../../api/events";
import { useResource } from "../../api/resource";
import { hasRole } from "../../app/session";
import { useTitle } from "../../app/title";
import { LoadedView } from "../../components/loaded_view";
import { Paging } from "../../components/paging";
import { Table } from "../../components/table";
import { Time } from "../../components/time";
import { TrunkState } from "../../components/trunk_state";
import { t } from "../../texts";
import { NumberDetails } from "./number_details";
import { NumberForm } from "./number_form";
import { RefusedCalls } from "./refused_calls";
import { UnknownSources } from "./unknown_sources";

export type PhoneNumber = Schemas["PhoneNumber"];
export type Agent = Schemas["Agent"];

const PAGE_SIZE = 50;

export default function PhoneNumbersPage() {
  useTitle(t.phoneNumbers.title);
  const { query, route } = useLocation();
  const agents = useResource((signal) => everything<Agent>("/v1/agents", signal), []);
  return (
    <LoadedView resource={agents}>
      {(all) => {
        if (query.number === "new" && hasRole("owner"))
          return (
            <>
              <BackToList />
              <h1>{t.phoneNumbers.create}</h1>
              <NumberForm number={null} agents={all} onSaved={(saved) => route(`/phone-numbers?number=${saved.id}`)} />
            </>
          );
        return query.number ? (
          <>
            <BackToList />
            <NumberDetails key={query.number} id={query.number} agents={all} />
          </>
        ) : (
          <NumberList agents={all} />
        );
      }}
    </LoadedView>
  );
}

function BackToList() {
  return (
    <a class="back" href="/phone-numbers">
      {t.phoneNumbers.backToList}
    </a>
  );
}

function NumberList({ agents }: { agents: readonly Agent[] }) {
  const { query, route } = useLocation();
  const offset = Number.parseInt(query.offset ?? "0", 10) || 0;
  const numbers = useResource(
    async (signal) => {
      await eventsArrive(LIST_PATIENCE_MS);
      return await getPage<PhoneNumber>("/v1/phone-numbers", { limit: PAGE_SIZE, offset }, signal);
    },
    [offset],
  );
  useEvents({ "number.updated": numbers.reload, resync: numbers.reload });
  return (
    <>
      <div class="title-bar">
        <h1>{t.phoneNumbers.title}</h1>
        <div class="actions">
          <button type="button" onClick={numbers.reload}>
            {t.phoneNumbers.checkAgain}
          </button>
          {hasRole("owner") ? (
            <a class="button primary" href="/phone-numbers?number=new">
              {t.phoneNumbers.create}
            </a>
          ) : (
            <span class="quiet">{t.phoneNumbers.ownersOnly}</span>
          )}
        </div>
      </div>
      <LoadedView resource={numbers}>
        {(page) =>
          page.data.length === 0 ? (
            <p class="notice">{t.phoneNumbers.empty}</p>
          ) : (
            <>
              <NumberTable numbers={page.data} agents={agents} />
              <Paging
                label={t.phoneNumbers.title}
                page={page}
                size={PAGE_SIZE}
                onMove={(first) => route(`/phone-numbers${queryString({ offset: first || null })}`)}
              />
              <h2 class="next">{t.phoneNumbers.refused.unknown}</h2>
              <RefusedCalls numberId={null} />
              {hasRole("operator") && <UnknownSources />}
            </>
          )
        }
      </LoadedView>
    </>
  );
}

function NumberTable({ numbers, agents }: { numbers: readonly PhoneNumber[]; agents: readonly Agent[] }) {
  const { number, name, agent, trunk, state } = t.phoneNumbers.columns;
  return (
    <Table label={t.phoneNumbers.title} columns={[number, name, agent, trunk, state]}>
      {numbers.map((each) => (
        <tr key={each.id}>
          <td>
            <a href={`/phone-numbers?number=${each.id}`}>{each.number}</a>
          </td>
          <td class="clip">{each.name ?? ""}</td>
          <td class="clip">{agentOf(each, agents)}</td>
          <td class="clip">{trunkOf(each)}</td>
          <td class="clip" title={each.sipStatusDetail ?? ""}>
            <TrunkState number={each} />{" "}
            {each.sipStatusSince !== null && (
              <span class="quiet">
                {t.phoneNumbers.since} <Time iso={each.sipStatusSince} />
              </span>
            )}
          </td>
        </tr>
      ))}
    </Table>
  );
}

function agentOf(number: PhoneNumber, agents: readonly Agent[]): string {
  if (number.agentId === null) return t.phoneNumbers.noAgent;
  return agents.find(({ id }) => id === number.agentId)?.name ?? t.agents.unknownId(number.agentId);
}

function trunkOf(number: PhoneNumber): string {
  const host = number.sipMode === "registration" ? number.sipProxy : number.sipIp;
  return host ?? (number.provider === "sip" ? t.phoneNumbers.noTrunk : number.provider);
}
