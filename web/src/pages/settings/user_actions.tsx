/** What an owner can do with one user. Nobody can disable or delete the own user. */

import { useSignal } from "@preact/signals";

import { write } from "../../api/client";
import { useSaving } from "../../api/saving";
import { DeleteButton } from "../../components/deletion";
import { ConfirmDialog } from "../../components/dialog";
import { notify } from "../../components/notices";
import { t } from "../../texts";
import { ChangeUser, type InvitedUser, USERS, type User } from "./user_forms";

const texts = t.settings.users;

interface Props {
  user: User;
  own: boolean;
  /** The user has a new link. */
  onInvited: (user: InvitedUser) => void;
  onChanged: () => void;
}

export function UserActions({ user, own, onInvited, onChanged }: Props) {
  const asked = useSignal<"change" | "reset" | "disable" | null>(null);
  const { busy, problem, run } = useSaving();
  const path = `${USERS}/${user.id}`;
  const button = (action: string, onClick: () => void) => (
    <button type="button" aria-label={`${action}: ${user.name}`} disabled={busy.value} onClick={onClick}>
      {action}
    </button>
  );

  function ask(what: typeof asked.value) {
    problem.value = "";
    asked.value = what;
  }

  async function reset() {
    const done = await run(async () => onInvited(await write<InvitedUser>("POST", `${path}/reset`)));
    if (done) asked.value = null;
  }

  async function setEnabled(enabled: boolean) {
    if (!(await run(() => write("PATCH", path, { enabled })))) return;
    asked.value = null;
    notify(enabled ? texts.enabled(user.name) : texts.disabled(user.name));
    onChanged();
  }

  return (
    <div class="actions">
      {button(texts.change, () => ask("change"))}
      {button(texts.reset, () => ask("reset"))}
      {!own &&
        (user.state === "disabled"
          ? button(texts.enable, () => void setEnabled(true))
          : button(texts.disable, () => ask("disable")))}
      {!own && (
        <DeleteButton
          path={path}
          name={user.name}
          question={texts.confirmDelete(user.name)}
          consequence={texts.confirmDeleteText}
          onDeleted={onChanged}
        />
      )}
      {asked.value === null && <p class="problem">{problem}</p>}
      {asked.value === "change" && <ChangeUser user={user} own={own} onChanged={onChanged} onClose={() => ask(null)} />}
      {asked.value === "reset" && (
        <ConfirmDialog
          title={texts.confirmReset(user.name)}
          text={own ? texts.confirmOwnResetText : texts.confirmResetText}
          action={texts.reset}
          busy={busy.value}
          problem={problem.value}
          onConfirm={() => void reset()}
          onClose={() => ask(null)}
        />
      )}
      {asked.value === "disable" && (
        <ConfirmDialog
          title={texts.confirmDisable(user.name)}
          text={texts.confirmDisableText}
          action={texts.disable}
          busy={busy.value}
          problem={problem.value}
          onConfirm={() => void setEnabled(false)}
          onClose={() => ask(null)}
        />
      )}
    </div>
  );
}
