#!/usr/bin/env bash
# Builds the book into target/book. mdBook is taken from PATH or target/tools, or compiled once; where it cannot be had, that
# is said, and nothing fails.
set -euo pipefail
cd "$(dirname "$0")/.."
: "${CARGO:=cargo}" "${TARGET:=target}"
version=0.5.4

tools=$(mkdir -p "$TARGET" && cd "$TARGET" && pwd)/tools
is_right() { [[ $("$1" --version 2>/dev/null) == "mdbook v$version" ]]; }
for mdbook in mdbook "$tools/bin/mdbook"; do
    if is_right "$mdbook"; then break; fi
done
if ! is_right "$mdbook"; then
    echo "book: compiling mdbook $version, once"
    if ! timeout -k 10 900 "$CARGO" install --quiet --locked --root "$tools" --target-dir "$tools/build" mdbook --version "$version"; then
        echo "book: skipped: mdbook $version cannot be had here"
        exit 0
    fi
    rm -rf "$tools/build"
fi
"$mdbook" build docs --dest-dir "$(cd "$TARGET" && pwd)/book"
# mdBook calls this page `index`, and leaves the links to it as they are.
cp "$TARGET/book/decisions/index.html" "$TARGET/book/decisions/README.html"

# Links between chapters; those to other files of the tree have no place in the book.
python3 - "$TARGET/book" <<'END'
import html.parser, os, sys, urllib.parse
top, dead, seen = os.path.abspath(sys.argv[1]), [], 0
class Links(html.parser.HTMLParser):
    def handle_starttag(self, tag, attributes):
        global seen
        link = urllib.parse.unquote(dict(attributes).get("href") or "").split("#")[0] if tag == "a" else ""
        path = os.path.normpath(os.path.join(self.folder, link))
        if link and "://" not in link and path.startswith(top + os.sep):
            seen += 1
            if not os.path.exists(path):
                dead.append(f"{self.name}: {link}")
for folder, _, names in os.walk(top):
    for name in names:
        # All chapters on one page for a printer, whose links are those of their own pages, and the page of an error.
        if name.endswith(".html") and name not in ("print.html", "404.html", "toc.html"):
            links = Links()
            links.folder, links.name = folder, name
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                links.feed(file.read())
print(*dead, sep="\n", end="\n" if dead else "")
print(f"book: {top}/index.html, {seen} links between chapters, {len(dead)} of them dead")
sys.exit(bool(dead))
END
