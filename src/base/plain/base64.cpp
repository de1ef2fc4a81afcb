#include "base/plain/base64.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cctype>

namespace evenkeel {

std::string to_base64(std::string_view bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');
  const int length =
      EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                      reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<int>(bytes.size()));
  text.resize(static_cast<size_t>(length));
  return text;
}

std::optional<std::string> from_base64(std::string_view text) {
  const auto digits = text.substr(0, std::min(text.find('='), text.size()));
  const size_t padding = text.size() - digits.size();
  const auto wrong = [](char c) { return !(std::isalnum(static_cast<unsigned char>(c)) || c == '+' || c == '/'); };
  if (text.empty() || text.size() % 4 != 0 || padding > 2 || std::any_of(digits.begin(), digits.end(), wrong) ||
      text.find_first_not_of('=', digits.size()) != std::string_view::npos)
    return {};
  std::string bytes(text.size() / 4 * 3, '\0');
  EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()), reinterpret_cast<const unsigned char*>(text.data()),
                  static_cast<int>(text.size()));
  bytes.resize(bytes.size() - padding);
  return bytes;
}

}  // namespace evenkeel
