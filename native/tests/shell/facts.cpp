/** Facts that the shell knows without a connection, for comparison with Python's:

    facts sensors                               the readings, as a message has them, in hexadecimal digits
    facts limits BUNDLE                         the longest header and the largest frame, bytes
    facts towards PEER LISTENING [ADVERTISED]   the address of this device
    facts verify BUNDLE                         nothing, or the error of the first file that is wrong
*/
#include <iostream>
#include <string>

#include "errors.hpp"
#include "format/codec.hpp"
#include "format/files.hpp"
#include "format/text.hpp"
#include "shell/addresses.hpp"
#include "shell/limits.hpp"
#include "shell/sensors.hpp"

using namespace partc;

int main(int count, char** words) try {
  const std::string what = count > 1 ? words[1] : "";
  const auto word = [&](int at) { return std::string(count > at ? words[at] : ""); };
  if (what == "sensors") {
    messages::Sensed sensed;
    sensed.vitals.readings = shell::Sensors().read();
    std::cout << to_hex(encode(sensed));
  } else if (what == "limits") {
    const RolePtr role = load_role(word(2));
    std::cout << shell::header_limit(*role) << " " << shell::frame_limit(*role);
  } else if (what == "towards") {
    std::cout << shell::address_towards(word(2), word(3), word(4));
  } else if (what == "verify") {
    verify_files(word(2), load_role(word(2))->build->files, [](const std::string&) { return false; });
  } else {
    return 2;
  }
} catch (const Error& error) {
  std::cout << error.what();
}
