/** The sign-in page. */

import { useSignal } from "@preact/signals";
import type { TargetedSubmitEvent } from "preact";
import { useEffect } from "preact/hooks";

import { ApiError } from "../api/client";
import { signIn } from "../app/session";
import { FormField } from "../components/form_field";
import { t } from "../texts";

export function SignInPage() {
  const problem = useSignal("");
  const busy = useSignal(false);
  useEffect(() => {
    document.title = `${t.signIn.title} · ${t.product}`;
  }, []);

  async function submit(event: TargetedSubmitEvent<HTMLFormElement>) {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    busy.value = true;
    problem.value = "";
    try {
      await signIn(String(form.get("username")), String(form.get("password")));
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
        <FormField label={t.signIn.username} name="username" autocomplete="username" required />
        <FormField label={t.signIn.password} name="password" type="password" autocomplete="current-password" required />
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
