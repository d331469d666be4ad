/** The users of the organization: a list, and a new user, whose link is shown once. */

import { useSignal } from "@preact/signals";

import { getPage } from "../../api/client";
import { useResource } from "../../api/resource";
import { hasRole, sessionState } from "../../app/session";
import { LoadedView } from "../../components/loaded_view";
import { Paging } from "../../components/paging";
import { ShownOnce } from "../../components/shown_once";
import { Table } from "../../components/table";
import { Time } from "../../components/time";
import { t } from "../../texts";
import { UserActions } from "./user_actions";
import { type InvitedUser, NewUser, USERS, type User } from "./user_forms";

const PAGE_SIZE = 50;
const TONES = { invited: "idle", active: "good", disabled: "bad" } as const;
const texts = t.settings.users;

export function Users() {
  return hasRole("owner") ? <UserList /> : <p class="notice">{texts.ownersOnly}</p>;
}

function UserList() {
  const offset = useSignal(0);
  const users = useResource(
    (signal) => getPage<User>(USERS, { limit: PAGE_SIZE, offset: offset.value }, signal),
    [offset.value],
  );
  const invited = useSignal<InvitedUser | null>(null);
  const { name, role, state, lastSignIn, created } = texts.columns;

  function showLink(user: InvitedUser) {
    invited.value = user;
    users.reload();
  }

  return (
    <>
      <p class="quiet">{texts.introduction}</p>
      <p class="quiet">{texts.rights}</p>
      {invited.value !== null && (
        <ShownOnce
          key={invited.value.link}
          title={texts.linkOf(invited.value.name)}
          explanation={texts.once}
          secret={invited.value.link}
          copy={texts.copy}
          onDone={() => {
            invited.value = null;
          }}
        />
      )}
      <LoadedView resource={users}>
        {(page) => (
          <>
            {page.pagination.total === 0 ? (
              <p class="notice">{texts.empty}</p>
            ) : (
              <Table label={t.settings.tabs.users} columns={[name, role, state, lastSignIn, created, ""]}>
                {page.data.map((user) => (
                  <UserRow
                    key={user.id}
                    user={user}
                    onInvited={showLink}
                    onChanged={() => {
                      if (invited.value?.id === user.id) invited.value = null;
                      users.reload();
                    }}
                  />
                ))}
              </Table>
            )}
            <Paging
              label={t.settings.tabs.users}
              page={page}
              size={PAGE_SIZE}
              onMove={(to) => {
                offset.value = to;
              }}
            />
          </>
        )}
      </LoadedView>
      <NewUser onCreated={showLink} />
    </>
  );
}

interface RowProps {
  user: User;
  onInvited: (user: InvitedUser) => void;
  onChanged: () => void;
}

function UserRow({ user, ...listeners }: RowProps) {
  const { value } = sessionState;
  const own = value.state === "signedIn" && value.session.user === user.name;
  return (
    <tr>
      <td class="clip">
        {user.name} {own && <span class="badge badge-idle">{texts.you}</span>}
      </td>
      <td>{texts.roles[user.role]}</td>
      <td>
        <span class={`badge badge-${TONES[user.state]}`}>{texts.states[user.state]}</span>
      </td>
      <td>{user.lastSignInAt === null ? texts.never : <Time iso={user.lastSignInAt} />}</td>
      <td>
        <Time iso={user.createdAt} />
      </td>
      <td>
        <UserActions user={user} own={own} {...listeners} />
      </td>
    </tr>
  );
}
