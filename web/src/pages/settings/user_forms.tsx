/** The forms of a new user and of a user's name and role. */

import { useSignal } from "@preact/signals";

import { type Schemas, write } from "../../api/client";
import { useSaving } from "../../api/saving";
import { restoreSession } from "../../app/session";
import { Dialog } from "../../components/dialog";
import { SelectField, TextField } from "../../components/fields";
import { notify } from "../../components/notices";
import { t } from "../../texts";

export type User = Schemas["User"];
export type InvitedUser = Schemas["InvitedUser"];
type Role = User["role"];
type Fields = ReturnType<typeof useFields>;

export const USERS = "/v1/users";
const texts = t.settings.users;
const ROLES: readonly Role[] = ["viewer", "editor", "owner"];

export function NewUser({ onCreated }: { onCreated: (user: InvitedUser) => void }) {
  const fields = useFields("", "viewer");
  const { busy, problem, run } = fields.saving;

  async function create(event: Event) {
    event.preventDefault();
    await run(async () => {
      onCreated(await write<InvitedUser>("POST", USERS, fields.body()));
      fields.name.value = "";
    });
  }

  return (
    <form class="panel next" onSubmit={(event) => void create(event)}>
      <h2>{texts.create}</h2>
      <NameAndRole fields={fields} />
      <p class="problem" role="alert">
        {problem}
      </p>
      <div class="actions">
        <button type="submit" class="primary" disabled={busy.value}>
          {texts.submit}
        </button>
      </div>
    </form>
  );
}

interface ChangeProps {
  user: User;
  own: boolean;
  onChanged: () => void;
  onClose: () => void;
}

export function ChangeUser({ user, own, onChanged, onClose }: ChangeProps) {
  const fields = useFields(user.name, user.role);
  const { busy, problem, run } = fields.saving;

  async function change(event: Event) {
    event.preventDefault();
    const saved = await run(async () => {
      await write("PATCH", `${USERS}/${user.id}`, fields.body());
      if (own) await restoreSession(); // it has the name
    });
    if (!saved) return;
    notify(t.actions.saved);
    onChanged();
    onClose();
  }

  return (
    <Dialog title={texts.changeOf(user.name)} onClose={onClose}>
      <form onSubmit={(event) => void change(event)}>
        <NameAndRole fields={fields} own={own} />
        <p class="problem" role="alert">
          {problem}
        </p>
        <div class="actions">
          <button type="button" onClick={onClose}>
            {t.actions.cancel}
          </button>
          <button type="submit" class="primary" disabled={busy.value}>
            {t.actions.save}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

function useFields(storedName: string, storedRole: Role) {
  const name = useSignal(storedName);
  const role = useSignal<Role>(storedRole);
  const saving = useSaving();
  const body = () => ({ name: name.value.trim().toLowerCase(), role: role.value });
  return { name, role, saving, body };
}

function NameAndRole({ fields, own = false }: { fields: Fields; own?: boolean }) {
  const problems = fields.saving.fields.value;
  return (
    <>
      <TextField
        label={texts.name}
        help={texts.nameHelp}
        problem={problems.name}
        maxLength={64}
        required
        value={fields.name.value}
        onInput={(value) => {
          fields.name.value = value;
        }}
      />
      <SelectField
        label={texts.role}
        help={own ? texts.ownRole : undefined}
        problem={problems.role}
        disabled={own}
        value={fields.role.value}
        options={ROLES.map((role) => [role, texts.roles[role]] as const)}
        onInput={(value) => {
          fields.role.value = value as Role;
        }}
      />
    </>
  );
}
