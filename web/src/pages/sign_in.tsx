/** The sign-in page. */

import { useSignal } from "@preact/signals";
import type { TargetedSubmitEvent } from "preact";

import { ApiError } from "../api/client";
import { signIn } from "../app/session";
import { useTitle } from "../app/title";
import { TextField } from "../components/fields";
import { t } from "../texts";

export function SignInPage() {
  const username = useSignal("");
  const password = useSignal("");
  const problem = useSignal("");
  const busy = useSignal(false);
  useTitle(t.signIn.title);

  async function submit(event: TargetedSubmitEvent<HTMLFormElement>) {
    event.preventDefault();
    busy.value = true;
    problem.value = "";
    try {
      await signIn(username.value, password.value);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      problem.value = error.status === 401 ? t.signIn.wrong : error.message || t.states.unreachable;
    } finally {
      busy.value = false;
    }
  }

  return (
    <main class="card">
      <h1>{t.signIn.title}</h1>
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
    </main>
  );
}
