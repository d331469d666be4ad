/** The page of a one-time link, which sets a user's password. */

import { useSignal } from "@preact/signals";
import type { TargetedSubmitEvent } from "preact";
import { useMemo } from "preact/hooks";
import { useLocation } from "preact-iso";

import { ApiError } from "../api/client";
import { setPassword } from "../app/session";
import { useTitle } from "../app/title";
import { TextField } from "../components/fields";
import { notify } from "../components/notices";
import { t } from "../texts";

const LEAST_LENGTH = 12;

/** The page that is opened then: a path of this server, nothing else. */
function pathOf(text: string | undefined): string {
  return text !== undefined && /^\/[a-z0-9-]+(\/[a-z0-9-]+)?$/.test(text) ? text : "/overview";
}

export function WelcomePage() {
  useTitle(t.welcome.title);
  const { query, route } = useLocation();
  const link = useMemo(() => ({ token: query.token ?? null, next: pathOf(query.to) }), []);
  const { token, next } = link;
  const password = useSignal("");
  const repeated = useSignal("");
  const problem = useSignal("");

  async function submit(event: TargetedSubmitEvent<HTMLFormElement>) {
    event.preventDefault();
    if (password.value !== repeated.value) {
      problem.value = t.welcome.different;
      return;
    }
    try {
      const { user } = await setPassword(token ?? "", password.value);
      notify(t.welcome.done(user));
      route(next, true); // the token is used up: it leaves the history
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      problem.value = error.details[0]?.message ?? (error.message || t.states.unreachable);
    }
  }

  return (
    <main class="card">
      <h1>{t.welcome.title}</h1>
      {token === null ? (
        <p role="alert">{t.welcome.noToken}</p>
      ) : (
        <form onSubmit={(event) => void submit(event)}>
          <p>{t.welcome.explanation}</p>
          <TextField
            label={t.welcome.password}
            name="password"
            type="password"
            autocomplete="new-password"
            minLength={LEAST_LENGTH}
            required
            value={password.value}
            onInput={(value) => {
              password.value = value;
            }}
          />
          <TextField
            label={t.welcome.repeat}
            name="repeat"
            type="password"
            autocomplete="new-password"
            required
            value={repeated.value}
            onInput={(value) => {
              repeated.value = value;
            }}
          />
          <p class="problem" role="alert">
            {problem}
          </p>
          <button type="submit" class="primary">
            {t.welcome.submit}
          </button>
        </form>
      )}
    </main>
  );
}
