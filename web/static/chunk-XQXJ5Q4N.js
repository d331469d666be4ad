import{a as i,b as m}from"./chunk-W6ORSPA6.js";import{F as t}from"./chunk-3JG5CAZB.js";function o({iso:e}){return t("time",{dateTime:e,title:m(e),children:i(e)})}export{o as a};
