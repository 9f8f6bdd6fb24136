# Arrays, tables, strings, functions and substitutions, without starting any program.
seed=7
declare -A count
declare -a lines
number() { seed=$(((seed * 1103515245 + 12345) & 0x7FFFFFFF)); value=$(((seed >> 8) % $1)); }
letters=abcdefghijklmnopqrstuvwxyz
for ((i = 0; i < 4500; i++)); do
  word=
  number 8
  for ((j = value + 2; j > 0; j--)); do number 26; word+=${letters:value:1}; done
  count[${word:0:2}]=$((${count[${word:0:2}]:-0} + 1))
  lines[i]="$i:$word:${word^^}"
done
echo "${#count[@]} ${#lines[@]}"
total=0
for line in "${lines[@]}"; do
  IFS=: read -r id word upper <<<"$line"
  changed=${line//[aeiou]/<&>}
  total=$((total + ${#changed} + ${#word} * id % 7))
  [[ $upper =~ ^[A-M]+([N-Z]*) ]] && total=$((total + ${#BASH_REMATCH[1]}))
done
echo "$total"
joined=$(printf '%s\n' "${lines[@]}")
sorted=($joined)
echo "${#joined} ${#sorted[@]}"
