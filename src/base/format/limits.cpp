#include "base/format/limits.h"

#include "base/plain/error.h"

namespace evenkeel::limits {

void check_integer(std::string_view key, int64_t value, int64_t least, int64_t most, std::string_view place) {
  EK_CHECK(value >= least && value <= most, kConfig, key, " is ", value, ", allowed: ", least, " or more, up to ", most,
           place);
}

void check_above_zero(std::string_view key, double value, std::string_view place) {
  EK_CHECK(value > 0 && value <= kScale, kConfig, key, " is ", value, ", allowed: above 0, up to ", kScale, place);
}

void check_from_zero(std::string_view key, double value, std::string_view place) {
  EK_CHECK(value >= 0 && value <= kScale, kConfig, key, " is ", value, ", allowed: 0 or more, up to ", kScale, place);
}

void check_share(std::string_view key, double value, std::string_view place) {
  EK_CHECK(value > 0 && value <= 1, kConfig, key, " is ", value, ", allowed: greater than 0, at most 1", place);
}

}  // namespace evenkeel::limits
