# Work for bash whose output is always the same: arrays, strings, functions, subshells, pipes, here-documents.
declare -A counts
seed=7
for ((i = 0; i < 8000; i++)); do
    ((seed = (seed * 1103515245 + 12345) % 2147483648))
    word="w$((seed / 65536 % 997))"
    counts[$word]=$((${counts[$word]:-0} + 1))
    list[i]=$word$word
done
echo "${#counts[@]} ${#list[@]} ${counts[w5]}"
text="${list[*]}"
without=${text//w1/}; echo "${#text} ${#without}"
text=${text//w2/xyz}
echo "${#text}"
fib() { if (($1 < 2)); then echo "$1"; else echo $(($(fib $(($1 - 1))) + $(fib $(($1 - 2))))); fi; }
fib 9
(for ((i = 0; i < 2000; i++)); do echo "$((i * 7919 % 2003)) line"; done) | sort -n | tail -n 2
while read -r number rest; do ((sum += number)); done < <(printf '%s\n' {1..3000}" rest of line")
echo "$sum"
cat <<EOF
$(printf '%.0sab' {1..200})
EOF
[[ "aaabbbccc" =~ (a+)(b+) ]] && echo "${BASH_REMATCH[2]}"
exit 7
