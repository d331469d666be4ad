/** What surrounds each page: the navigation, the user, and the choice of colours. */

import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { useLocation } from "preact-iso";

import { ApiError } from "../api/client";
import { Notices, notify } from "../components/notices";
import { t } from "../texts";
import { mayLeave } from "./leave_guard";
import { NAVIGATION } from "./pages";
import { chooseOrganization, type Session, sessionIsOver, sessionState, signOut } from "./session";
import { SignInDialog } from "./sign_in";
import { applyTheme, THEMES, type Theme, theme } from "./theme";
import { absoluteTimes, showAbsoluteTimes } from "./time_style";

export function Shell({ children }: { children: ComponentChildren }) {
  const { path } = useLocation();
  const content = useRef<HTMLElement>(null);
  const before = useRef(path);
  useEffect(() => {
    if (before.current !== path) content.current?.focus({ preventScroll: true });
    before.current = path;
  }, [path]);
  const session = sessionState.value.state === "signedIn" ? sessionState.value.session : null;
  return (
    <div class="shell">
      <a class="skip" href="#content">
        {t.skipToContent}
      </a>
      <header class="side">
        <a class="product" href="/">
          {t.product}
        </a>
        <nav aria-label={t.navigation.label}>
          <ul>
            {NAVIGATION.map(([address, name]) => (
              <li key={address}>
                <a href={address} aria-current={path.startsWith(address) ? "page" : undefined}>
                  {name}
                </a>
              </li>
            ))}
          </ul>
        </nav>
        <div class="user">
          <span class="user-name">{session?.user}</span>
          {session && <OrganizationName session={session} />}
          <label class="field-inline">
            <span class="theme-label">{t.navigation.theme.label}</span>
            <select value={theme.value} onChange={(event) => applyTheme(event.currentTarget.value as Theme)}>
              {THEMES.map((each) => (
                <option key={each} value={each}>
                  {t.navigation.theme[each]}
                </option>
              ))}
            </select>
          </label>
          <label class="field-inline">
            <input
              type="checkbox"
              checked={absoluteTimes.value}
              onChange={(event) => showAbsoluteTimes(event.currentTarget.checked)}
            />
            {t.navigation.absoluteTimes}
          </label>
          <button type="button" onClick={() => void leave()}>
            {t.navigation.signOut}
          </button>
        </div>
      </header>
      <main id="content" ref={content} tabIndex={-1}>
        {children}
      </main>
      <Notices />
      {session && sessionIsOver.value && <SignInDialog user={session.user} />}
    </div>
  );
}

async function leave(): Promise<void> {
  if (!mayLeave()) return;
  try {
    await signOut(false);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    notify(error.message || t.states.unreachable);
  }
}

function OrganizationName({ session: { organization, organizations } }: { session: Session }) {
  if (organizations === null || organizations.length < 2) return <span class="quiet">{organization?.name}</span>;
  return (
    <select
      class="organization"
      aria-label={t.navigation.organization}
      value={organization?.id}
      onChange={(event) => {
        chooseOrganization(event.currentTarget.value);
        event.currentTarget.value = organization?.id ?? "";
      }}
    >
      {organizations.map(({ id, name }) => (
        <option key={id} value={id}>
          {name}
        </option>
      ))}
    </select>
  );
}
