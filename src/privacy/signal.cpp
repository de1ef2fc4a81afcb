#include "privacy/signal.h"

#include "base/plain/error.h"
#include "base/plain/number_text.h"

namespace evenkeel::privacy {

std::string beside_noise(double signal) {
  return concat(fixed(signal, 3), " times their noise",
                signal < kMostlyNoise ? ": mostly noise, expect little learning" : "");
}

}  // namespace evenkeel::privacy
