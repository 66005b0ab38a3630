#!/usr/bin/env bash
# The tables and charts of the tutorials that the bundled studies come from, drawn by `autotune compare`.
# Usage: benchmarks/seeds.sh gpu|cpu OUT_DIR      `gpu`: the sizes of a large card; `cpu`: what two cores finish
set -uo pipefail
scale=${1:?gpu or cpu}
out=${2:?folder for tables and charts}
mkdir -p "$out"
export AUTOTUNE_DB=${AUTOTUNE_DB:-$out/seeds.db}
autotune=${AUTOTUNE:-autotune}

if [ "$scale" = gpu ]; then
  ladder=1024,2048,4096 sizes=128,256,512,1024,2048 products="X=4194304,Y=16384" rows="Y=16384,K=16384" rect=rect trials=${TRIALS:-24}
else
  ladder=256,512 sizes=128,256,512 products="X=65536,Y=1024" rows="Y=2048,K=2048" rect="M=400,N=400,K=251" trials=${TRIALS:-8}
fi

draw() { # NAME STUDY OPTIONS...
  local name=$1; shift
  echo "== autotune compare $*"
  $autotune compare "$@" --trials "$trials" --seed 1 --chart "$out/$name.svg" 2>"$out/$name.log" | tee "$out/$name.txt"
  $autotune compare "$@" --trials "$trials" --no-search --chart "$out/$name.png" >/dev/null 2>&1
}

draw matmul_float matmul --by VARIANT --sizes "$ladder"
draw matmul_int matmul --by VARIANT --sizes "$ladder" --choice T=int
draw matmul_host matmul --by size --sizes "$sizes" --baselines
draw matmul_rect matmul_rect --by ASPECT --fix TILE_ELEMENTS=1024,4096 --sizes "$rect"
draw matmul_edges matmul_rect --by EDGES --sizes "$rect"
draw product_sum product_sum --by VARIANT --sizes "$products"
draw product_sum_threads product_sum --by GROUP_SIZE --sizes "$products"
draw element_mult element_mult --by VARIANT --sizes "$rows"
