/** Signing in: the form, and the dialog over a page whose session is over. */

import { useSignal } from "@preact/signals";
import type { TargetedSubmitEvent } from "preact";

import { ApiError } from "../api/client";
import { Dialog } from "../components/dialog";
import { TextField } from "../components/fields";
import { t } from "../texts";
import { signIn } from "./session";

/** The page behind it keeps what is not saved, and shows nothing of it. */
export function SignInDialog({ user }: { user: string }) {
  return (
    <Dialog title={t.signIn.again} class="covering">
      <p>{t.signIn.over}</p>
      <SignInForm user={user} />
    </Dialog>
  );
}

export function SignInForm({ user = "" }: { user?: string }) {
  const username = useSignal(user);
  const password = useSignal("");
  const problem = useSignal("");
  const busy = useSignal(false);

  async function submit(event: TargetedSubmitEvent<HTMLFormElement>) {
    event.preventDefault();
    busy.value = true;
    problem.value = "";
    try {
      await signIn(username.value, password.value);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      problem.value = explanation(error);
    } finally {
      busy.value = false;
    }
  }

  return (
    <form onSubmit={(event) => void submit(event)}>
      <TextField
        label={t.signIn.username}
        name="username"
        autocomplete="username"
        required
        value={username.value}
        onInput={(value) => {
          username.value = value;
        }}
      />
      <TextField
        label={t.signIn.password}
        name="password"
        type="password"
        autocomplete="current-password"
        autofocus={user !== ""}
        required
        value={password.value}
        onInput={(value) => {
          password.value = value;
        }}
      />
      <p class="problem" role="alert">
        {problem}
      </p>
      <button type="submit" class="primary" disabled={busy.value}>
        {t.signIn.submit}
      </button>
    </form>
  );
}

function explanation({ status, message, details, retryAfterS }: ApiError): string {
  if (status === 0) return t.states.unreachable;
  if (status === 401) return t.signIn.wrong;
  if (status === 429 && retryAfterS !== null) return t.signIn.tooMany(retryAfterS);
  return [message, ...details.map((each) => `${each.field}: ${each.message}`)].join(". ");
}
