/** The servers that share the database, where there are several: what each takes and what is wrong with it; for
 * operators also its version, all its calls, its leases and its last heartbeat. */

import { useEffect } from "preact/hooks";

import { get, type Schemas } from "../../api/client";
import { useResource } from "../../api/resource";
import { hasRole } from "../../app/session";
import { Table } from "../../components/table";
import { Time } from "../../components/time";
import { t } from "../../texts";

type NodeCapacity = Schemas["NodeCapacity"];
type Node = Schemas["Node"];

const TONES: Record<NodeCapacity["state"], "good" | "live" | "bad"> = { up: "good", draining: "live", down: "bad" };
const REFRESH_MS = 5000;

export function NodeTable({ nodes }: { nodes: readonly NodeCapacity[] }) {
  if (nodes.length < 2) return null;
  return (
    <section class="nodes">
      <h2>{t.live.nodes.title}</h2>
      {hasRole("operator") ? <OperatorsTable nodes={nodes} /> : <Rows nodes={nodes} />}
    </section>
  );
}

function OperatorsTable({ nodes }: { nodes: readonly NodeCapacity[] }) {
  const listed = useResource((signal) => get<Node[]>("/v1/nodes", {}, signal), []);
  useEffect(() => {
    const timer = setInterval(listed.reload, REFRESH_MS);
    return () => clearInterval(timer);
  }, []);
  const { value } = listed.current;
  const found = value.state === "ready" ? value.value : [];
  const mixed = new Set(found.filter((each) => each.state !== "down").map((each) => each.version)).size > 1;
  return (
    <>
      {mixed && <p class="notice">{t.live.nodes.mixed}</p>}
      <Rows nodes={nodes} listed={found} />
    </>
  );
}

function Rows({ nodes, listed }: { nodes: readonly NodeCapacity[]; listed?: readonly Node[] }) {
  const { columns, operatorColumns } = t.live.nodes;
  const titles = [...Object.values(columns), ...(listed === undefined ? [] : Object.values(operatorColumns))];
  return (
    <Table label={t.live.nodes.title} columns={[...titles, t.live.nodes.problems]}>
      {nodes.map((each) => (
        <Row key={each.name} node={each} listed={listed?.find(({ name }) => name === each.name)} all={listed} />
      ))}
    </Table>
  );
}

interface RowProps {
  node: NodeCapacity;
  listed: Node | undefined;
  all: readonly Node[] | undefined;
}

function Row({ node, listed, all }: RowProps) {
  return (
    <tr>
      <td class="clip">{node.name}</td>
      <td>
        <span class={`badge badge-${TONES[node.state]}`}>{t.live.nodes.state[node.state]}</span>
      </td>
      <td class="figure">{node.calls}</td>
      <td class="figure">{node.callsLeft}</td>
      {all !== undefined && (
        <>
          <td class="figure">{listed && t.live.ofCalls(listed.calls, listed.capacity)}</td>
          <td class="figure">{listed?.leases}</td>
          <td>{listed?.version}</td>
          <td>{listed && <Time iso={listed.lastSeenAt} />}</td>
        </>
      )}
      <td class="wrap">
        <Problems node={node} />
      </td>
    </tr>
  );
}

function Problems({ node }: { node: NodeCapacity }) {
  const { rejectionReason, warnings } = node;
  return (
    <>
      {rejectionReason !== null && (
        <div>{t.live.rejected(t.live.rejectedBecause[rejectionReason] ?? rejectionReason)}</div>
      )}
      {warnings.map(({ part, message }) => (
        <div key={part}>
          {t.live.parts[part] ?? part}: <bdi>{t.live.problems[message] ?? message}</bdi>
        </div>
      ))}
    </>
  );
}
