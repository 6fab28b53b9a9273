# "FILE ANCHOR" of each heading in Markdown files: the anchors that GitHub gives them. tests/check-docs compares links
# with them; docs/site.sh writes them into HTML.
function anchor(text,   slug) {
    gsub(/`|\*|<[^>]*>/, "", text); gsub(/&[a-z]+;/, "", text)
    slug = tolower(text); gsub(/[^a-z0-9 _-]/, "", slug); gsub(/ /, "-", slug)
    return slug
}
FNR == 1 { fence = 0; split("", seen) }
/^ *```/ { fence = !fence }
!fence && /^#+ / {
    sub(/^#+ +/, ""); sub(/ +$/, ""); slug = anchor($0)
    print FILENAME, slug (seen[slug]++ ? "-" seen[slug] - 1 : "")
}
