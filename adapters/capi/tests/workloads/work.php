<?php
// Strings, arrays, regular expressions and the extensions that Debian's package loads: the output depends on nothing but this.
$words = [];
for ($i = 0; $i < 60000; $i++) {
    $word = substr(md5((string) ($i * 7919)), 0, 1 + $i % 31);
    $words[$word] = ($words[$word] ?? 0) + strlen($word);
}
ksort($words, SORT_STRING);
echo count($words), " ", hash("sha256", serialize($words)), "\n";
echo preg_replace_callback('/(\d+)-(\w+)/', fn($m) => strrev($m[2]) . $m[1], "12-abc 34-def 56-ghi"), "\n";
$text = str_repeat(implode(",", array_slice(array_keys($words), 0, 500)), 40);
echo strlen(json_encode(explode(",", $text))), " ", crc32($text), "\n";
for ($round = 0; $round < 20; $round++) {
    $tree = array_map(fn($n) => array_fill(0, $n % 50 + 1, str_repeat("x", $n)), range(1, 500));
    echo $round, " ", array_sum(array_map("count", $tree)), "\n";
}
foreach (["iconv", "ctype", "fileinfo", "posix", "tokenizer"] as $extension) {
    echo $extension, " ", extension_loaded($extension) ? "loaded" : "not loaded", "\n";
}
echo extension_loaded("iconv") ? bin2hex(iconv("UTF-8", "UTF-16LE", "terrace")) : "", "\n";
