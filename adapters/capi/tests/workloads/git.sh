# Work for git whose output is always the same: the dates and names are fixed by variables.
set -e
git init -q -b main here && cd here
for i in 1 2 3 4 5 6 7 8; do
    for j in 1 2 3 4 5 6 7 8 9 10; do
        awk -v i="$i" -v j="$j" 'BEGIN { for (k = 0; k < 300; k++) print "line", (k * i * j) % 997 }' > "file$j"
    done
    git add . && git commit -q -m "change $i"
done
git checkout -q -b other HEAD~3
echo more >> file1 && git commit -q -a -m other
git merge -q -m merged -s ours main
git log --format='%H %s' --stat | cat
git diff --stat HEAD~2 main | cat
git gc -q && git fsck --full 2>/dev/null
git blame -s file3 | head -n 3
git rev-list --objects --all | wc -l
git grep -c 'line 7' | head -n 4
