# Writes a file as a C array: cmake -DIN=page.js -DOUT=page_js.h -DNAME=page_js -P AresBytes.cmake
file(READ ${IN} hex HEX)
string(REPEAT "[0-9a-f]" 64 line)
string(REGEX REPLACE "(${line})" "\\1\n" hex "${hex}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hex "${hex}")
get_filename_component(from ${IN} NAME)
file(WRITE ${OUT} "/* ${from} */\nstatic const unsigned char ${NAME}[] = {\n${hex}\n};\n")
