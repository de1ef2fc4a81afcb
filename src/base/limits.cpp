#include "base/limits.h"

#include "base/error.h"

namespace evenkeel::limits {

void check_integer(std::string_view key, int64_t value, int64_t least, int64_t most) {
  EK_CHECK(value >= least && value <= most, kConfig, key, " is ", value, ", allowed: ", least, " or more, up to ",
           most);
}

void check_above_zero(std::string_view key, double value) {
  EK_CHECK(value > 0 && value <= kScale, kConfig, key, " is ", value, ", allowed: above 0, up to ", kScale);
}

void check_from_zero(std::string_view key, double value) {
  EK_CHECK(value >= 0 && value <= kScale, kConfig, key, " is ", value, ", allowed: 0 or more, up to ", kScale);
}

}  // namespace evenkeel::limits
