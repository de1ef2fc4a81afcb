// Fuzzes headers of NumPy files. The first line has the announced shape and dtype, the rest is the file.
#include "flower/format/npy.h"
#include "tests/fuzz/fuzz.h"

void evenkeel::fuzz::fuzz_one(std::string_view input) {
  using namespace evenkeel::flower;
  if (input.size() < 2) return;
  flower::ArrayHead head{.name = "a", .dtype = input[0] & 1 ? "float32" : "uint16", .shape = {}};
  for (int axes = input[1] & 3; axes-- > 0;) head.shape.push_back(2 + axes);
  input.remove_prefix(2);
  if (input.size() < flower::kNpyPreamble || flower::npy_head_bytes(input) > input.size()) return;
  const flower::NpyHead found = flower::parse_npy_head(input, head);
  if (found.bytes > input.size()) fuzz::finding("a head that is longer than its file", {});
  std::vector<std::byte> place(head.bytes());
  const auto data = input.substr(found.bytes, place.size());
  if (found.fortran_order)
    flower::FortranOrder(head, place).put({reinterpret_cast<const std::byte*>(data.data()), data.size()});
}
