// Shows the error on the login form after a wrong token.
import { applyTheme } from "./theme.js";

applyTheme();
document.getElementById("wrong").hidden = location.search !== "?wrong";
