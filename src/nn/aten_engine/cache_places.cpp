#include "nn/aten_engine/cache_places.h"

#include <ATen/ATen.h>

#include <cmath>
#include <numeric>

#include "nn/aten_engine/attention.h"
#include "nn/aten_engine/rows.h"
#include "nn/dense/index.h"

namespace evenkeel::nn::aten {

PlacesStep PlacesStep::of(const KvPlaces& places, std::span<const int64_t> lengths_B) {
  const auto& place_B = places.place_B;
  std::vector<int64_t> counted(place_B.size() + 1), starts, rows;
  std::iota(counted.begin(), counted.end(), int64_t{0});
  for (size_t b = 0; b < place_B.size(); ++b) {
    starts.push_back(place_B[b] * places.capacity);
    rows.push_back(starts.back() + lengths_B[b] - 1);
  }
  starts.push_back(places.memory.size(3));
  IndexUpload upload;
  const size_t counts = upload.add(ints(counted)), key_starts = upload.add(ints(starts)),
               lengths = upload.add(ints(lengths_B)), new_rows = upload.add(rows), own = upload.add(place_B);
  upload.send(places.memory.device());
  return {upload.sent_ints(counts), upload.sent_ints(key_starts), upload.sent_ints(lengths), upload.sent(new_rows),
          upload.sent(own)};
}

PlacesStep PlacesStep::copy() const {
  return {starts_B1.clone(), key_starts_B1.clone(), lengths_B.clone(), rows_B.clone(), places_B.clone()};
}

void PlacesView::put(int64_t layer, const at::Tensor& k_BGP, const at::Tensor& v_BGP) {
  for (const int64_t which : {0, 1}) {
    const auto& new_BGP = which == 0 ? k_BGP : v_BGP;
    copy_rows_once(places_.memory[layer][which], 1, step_.rows_B,
                   new_BGP.to(places_.memory.scalar_type()).transpose(0, 1));
  }
}

at::Tensor PlacesView::attend(int64_t layer, const at::Tensor& q_BHP, bool /*only_last*/, int64_t window,
                              double soft_cap) const {
  const bool has_type = q_BHP.scalar_type() == places_.memory.scalar_type();
  if (!has_flash(q_BHP) || soft_cap > 0 || !has_type) return padded_attention(layer, q_BHP, window, soft_cap);
  const auto k_MGP = places_.memory[layer][0].transpose(0, 1), v_MGP = places_.memory[layer][1].transpose(0, 1);
  const auto out = std::get<0>(at::_flash_attention_forward(
      q_BHP, k_MGP, v_MGP, step_.starts_B1, step_.key_starts_B1, 1, places_.capacity, 0.0, /*is_causal=*/true,
      /*return_debug_mask=*/false, 1.0 / std::sqrt(static_cast<double>(q_BHP.size(2))), tokens_before(window),
      tokens_after(window), /*seqused_k=*/step_.lengths_B));
  return out.reshape({q_BHP.size(0), -1});
}

at::Tensor PlacesView::padded_attention(int64_t layer, const at::Tensor& q_BHP, int64_t window, double soft_cap) const {
  const int64_t batch = q_BHP.size(0), heads = q_BHP.size(1), groups = places_.memory.size(2);
  const auto heads_of = [&](int64_t which) {  // [B, H, capacity, P]
    const auto x_GNCP = places_.memory[layer][which].view({groups, places_.count(), places_.capacity, -1});
    const auto own = x_GNCP.index_select(1, step_.places_B).to(q_BHP.scalar_type()).transpose(0, 1);
    return groups == heads ? own : own.repeat_interleave(heads / groups, 1, heads);
  };
  const auto k = heads_of(0), v = heads_of(1);
  const auto ends = step_.lengths_B.view({-1, 1, 1, 1});
  const auto keys = at::arange(places_.capacity, step_.lengths_B.options());
  auto visible = keys.lt(ends);
  if (window > 0) visible = visible.logical_and(keys.ge(ends - window));
  const auto q = q_BHP.view({batch, heads, 1, -1});
  const auto out =
      soft_cap > 0 ? capped_attention(q, k, v, visible, soft_cap) : at::scaled_dot_product_attention(q, k, v, visible);
  return out.reshape({batch, -1});
}

}  // namespace evenkeel::nn::aten
