/** The sign-in page. */

import { SignInForm } from "../app/sign_in";
import { useTitle } from "../app/title";
import { t } from "../texts";

export function SignInPage() {
  useTitle(t.signIn.title);
  return (
    <main class="card">
      <h1>{t.signIn.title}</h1>
      <SignInForm />
    </main>
  );
}
